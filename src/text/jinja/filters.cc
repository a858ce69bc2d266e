#include "text/jinja/filters.h"

#include "text/jinja/attributes.h"
#include "text/jinja/number_text.h"
#include "text/jinja/repr.h"
#include "text/jinja/unicode.h"

namespace deltad::jinja {

FilterFunction find_filter(std::string_view name) {
  static const FilterTable kTable = [] {
    FilterTable table;
    add_text_filters(&table);
    add_number_filters(&table);
    add_sequence_filters(&table);
    add_order_filters(&table);
    add_apply_filters(&table);
    add_html_filters(&table);
    return table;
  }();
  const auto it = kTable.find(name);
  return it == kTable.end() ? nullptr : it->second;
}

AttributePath::AttributePath(Render& render, const Value& attribute) {
  if (attribute.is_none()) return;
  if (!attribute.is_string()) {
    depth_ = attribute.depth();
    parts_.push_back(attribute);
    return;
  }
  const std::string_view path = attribute.text();
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('.', at), path.size());
    const std::string_view part = path.substr(at, end - at);
    const bool digits =
        !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    parts_.push_back(digits ? Value::integer(*parse_int(part, 10))
                            : render.text(std::string(part)));
    at = end + 1;
  }
}

Value AttributePath::get(Render& render, const Value& item, const Value& otherwise) const {
  Value v = item;
  for (const Value& part : parts_) {
    v = get_item(render, v, part);
    if (v.is_undefined() && !otherwise.is_none()) v = otherwise;
  }
  return v;
}

Value folded(Render& render, const Value& v, bool case_sensitive) {
  if (case_sensitive || !v.is_string()) return v;
  return render.text(to_lower(v.text()));
}

}  // namespace deltad::jinja
