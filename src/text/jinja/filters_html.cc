// Filters of HTML and URLs.
#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/html_entities.h"
#include "text/jinja/iteration.h"
#include "text/jinja/repr.h"
#include "text/jinja/unicode.h"

namespace deltad::jinja {

namespace {

Value escape(Render& render, const Value& input, Arguments& a) {
  Parameters("escape", a, {});
  return render.text(escaped_str(render, input), true);
}

Value force_escape(Render& render, const Value& input, Arguments& a) {
  Parameters("forceescape", a, {});
  return render.text(escape_html(str(render, input)), true);
}

Value safe(Render& render, const Value& input, Arguments& a) {
  Parameters("safe", a, {});
  return render.text(str(render, input), true);
}

Value striptags(Render& render, const Value& input, Arguments& a) {
  Parameters("striptags", a, {});
  const std::string s = str(render, input);
  render.meter.work(s.size());
  std::string kept;
  size_t at = 0;
  for (;;) {
    const size_t start = s.find('<', at);
    if (start == std::string::npos) break;
    const bool comment = s.compare(start, 4, "<!--") == 0;
    const size_t end = comment ? s.find("-->", start + 4) : s.find('>', start);
    if (end == std::string::npos) break;
    kept.append(s, at, start - at);
    at = end + (comment ? 3 : 1);
  }
  kept.append(s, at, std::string::npos);
  std::string words;
  for (const std::string_view word : split_space(kept, -1)) {
    if (!words.empty()) words.push_back(' ');
    words.append(word);
  }
  return render.text(unescape_html(words));
}

std::string url_quote(std::string_view s, bool query) {
  std::string out;
  for (const char c : s) {
    const auto u = static_cast<unsigned char>(c);
    const bool plain = (u < 0x80 && is_alnum(u)) || c == '_' || c == '.' || c == '-' || c == '~';
    if (plain || (c == '/' && !query)) {
      out.push_back(c);
    } else if (c == ' ' && query) {
      out.push_back('+');
    } else {
      out += fmt::format("%{:02X}", u);
    }
  }
  return out;
}

Value urlencode(Render& render, const Value& input, Arguments& a) {
  Parameters("urlencode", a, {});
  if (input.is_string() || !iterable(input)) {
    return render.text(url_quote(str(render, input), false));
  }
  const Value pairs =
      input.is(Kind::kDict) ? render.make<View>(Kind::kView, input, View::Part::kItems) : input;
  std::string out;
  Walk walk(render, pairs);
  Value item;
  for (bool first = true; walk.next(&item); first = false) {
    const std::vector<Value> pair = to_vector(render, item);
    if (pair.size() != 2) fail("urlencode: expected pairs of a key and a value");
    if (!first) out.push_back('&');
    out += url_quote(str(render, pair[0]), true) + "=" + url_quote(str(render, pair[1]), true);
    render.meter.check_size(out.size());
  }
  return render.text(std::move(out));
}

Value xmlattr(Render& render, const Value& input, Arguments& a) {
  const Parameters p("xmlattr", a, {"autospace"});
  if (input.is_undefined()) fail(input.undefined().message());
  if (!input.is(Kind::kDict)) {
    fail(fmt::format("'{}' object has no attribute 'items'", type_name(input)));
  }
  std::string out;
  for (const auto& [key, v] : input.dict().entries) {
    render.meter.step();
    if (v.is_none() || v.is_undefined()) continue;
    if (!key.is_string()) fail(fmt::format("expected string, got {}", type_name(key)));
    if (key.text().find_first_of(" \t\n\r\f\v/>=") != std::string::npos) {
      fail(fmt::format("Invalid character in attribute name: {}", quoted_repr(key.text())));
    }
    if (!out.empty()) out.push_back(' ');
    out += escaped_str(render, key) + "=\"" + escaped_str(render, v) + "\"";
    render.meter.check_size(out.size());
  }
  if (!out.empty() && (!p.has(0) || truthy(render, p[0]))) out.insert(0, " ");
  return render.text(std::move(out), render.autoescape);
}

}  // namespace

void add_html_filters(FilterTable* table) {
  table->insert({{"e", escape},
                 {"escape", escape},
                 {"forceescape", force_escape},
                 {"safe", safe},
                 {"striptags", striptags},
                 {"urlencode", urlencode},
                 {"xmlattr", xmlattr}});
}

}  // namespace deltad::jinja
