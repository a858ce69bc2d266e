// Python's textwrap.wrap() for the wordwrap filter.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/render.h"

namespace deltad::jinja {

struct WrapStyle {
  Int width = 79;
  bool break_long_words = true;
  bool break_on_hyphens = true;
};

// The lines of one paragraph, none for one without words.
std::vector<std::string> wrap_text(Render& render, std::string_view text, const WrapStyle& style);

}  // namespace deltad::jinja
