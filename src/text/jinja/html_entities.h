// Character references of HTML: &amp; &#39; &#x27; &eacute;
#pragma once

#include <string>
#include <string_view>

namespace deltad::jinja {

// References replaced by what they stand for: numeric ones and the named ones of HTML 4.
std::string unescape_html(std::string_view s);

}  // namespace deltad::jinja
