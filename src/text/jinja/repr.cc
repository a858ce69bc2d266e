#include "text/jinja/repr.h"

#include <fmt/format.h>

#include "text/jinja/number_text.h"
#include "text/jinja/unicode.h"

namespace deltad::jinja {

namespace {

const char* view_type(View::Part part) {
  switch (part) {
    case View::Part::kKeys:
      return "dict_keys";
    case View::Part::kValues:
      return "dict_values";
    case View::Part::kItems:
      return "dict_items";
  }
  return "";
}

void append_items(Render& render, std::string* out, const std::vector<Value>& items) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out->append(", ");
    append_repr(render, out, items[i]);
  }
}

void append_view(Render& render, std::string* out, const View& view) {
  out->append(view_type(view.part)).append("([");
  bool first = true;
  for (const auto& [key, value] : view.dict.dict().entries) {
    if (!first) out->append(", ");
    first = false;
    if (view.part == View::Part::kItems) out->append("(");
    if (view.part != View::Part::kValues) append_repr(render, out, key);
    if (view.part == View::Part::kItems) out->append(", ");
    if (view.part != View::Part::kKeys) append_repr(render, out, value);
    if (view.part == View::Part::kItems) out->append(")");
  }
  out->append("])");
}

std::string iterator_kind(const Iterator& i) {
  return i.name() == nullptr ? fmt::format("{} object", i.type())
                             : fmt::format("{} object {}", i.type(), i.name());
}

std::string range_repr(const Range& r) {
  std::string out = "range(" + int_text(r.start) + ", " + int_text(r.stop);
  if (r.step != 1) out += ", " + int_text(r.step);
  return out + ")";
}

}  // namespace

std::string type_name(const Value& v) {
  switch (v.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return v.string().markup ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kRange:
      return "range";
    case Kind::kView:
      return view_type(v.view().part);
    case Kind::kIterator:
      return v.iterator().type();
    case Kind::kObject:
      return v.native().type_name();
  }
  return "";
}

std::string object_label(const Value& v) {
  if (v.is_none()) return "None";
  return type_name(v) + " object";
}

bool truthy(Render&, const Value& v) {
  switch (v.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return v.as_bool();
    case Kind::kInt:
      return v.as_int() != 0;
    case Kind::kFloat:
      return v.as_float() != 0;
    case Kind::kString:
      return !v.text().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !v.items().empty();
    case Kind::kDict:
      return !v.dict().entries.empty();
    case Kind::kRange:
      return v.range().length != 0;
    case Kind::kView:
      return !v.view().dict.dict().entries.empty();
    case Kind::kIterator:
    case Kind::kObject:
      return true;
  }
  return false;
}

std::string quoted_repr(std::string_view s, bool ascii_only) {
  const bool double_quotes =
      s.find('\'') != std::string_view::npos && s.find('"') == std::string_view::npos;
  const char quote = double_quotes ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < s.size();) {
    const size_t start = at;
    const char32_t c = utf8_next(s, &at);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(c));
    } else if (c == '\n') {
      out.append("\\n");
    } else if (c == '\r') {
      out.append("\\r");
    } else if (c == '\t') {
      out.append("\\t");
    } else if (is_printable(c) && (c < 0x80 || !ascii_only)) {
      out.append(s.substr(start, at - start));
    } else if (c < 0x100) {
      out.append(fmt::format("\\x{:02x}", static_cast<uint32_t>(c)));
    } else if (c < 0x10000) {
      out.append(fmt::format("\\u{:04x}", static_cast<uint32_t>(c)));
    } else {
      out.append(fmt::format("\\U{:08x}", static_cast<uint32_t>(c)));
    }
  }
  out.push_back(quote);
  return out;
}

std::string address_text(std::string_view kind, const Object* object) {
  return fmt::format("<{} at {}>", kind, fmt::ptr(object));
}

void append_repr(Render& render, std::string* out, const Value& v) {
  const Level level(&render.meter.nesting, render.meter.max_nesting(), "values");
  render.meter.step();
  switch (v.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
      out->append("Undefined");
      break;
    case Kind::kNone:
      out->append("None");
      break;
    case Kind::kBool:
      out->append(v.as_bool() ? "True" : "False");
      break;
    case Kind::kInt:
      out->append(int_text(v.as_int()));
      break;
    case Kind::kFloat:
      out->append(float_text(v.as_float()));
      break;
    case Kind::kString:
      render.meter.work(v.text().size());
      if (v.string().markup) out->append("Markup(");
      out->append(quoted_repr(v.text()));
      if (v.string().markup) out->append(")");
      break;
    case Kind::kList:
      out->append("[");
      append_items(render, out, v.items());
      out->append("]");
      break;
    case Kind::kTuple:
      out->append("(");
      append_items(render, out, v.items());
      out->append(v.items().size() == 1 ? ",)" : ")");
      break;
    case Kind::kDict: {
      out->append("{");
      bool first = true;
      for (const auto& [key, value] : v.dict().entries) {
        if (!first) out->append(", ");
        first = false;
        append_repr(render, out, key);
        out->append(": ");
        append_repr(render, out, value);
      }
      out->append("}");
      break;
    }
    case Kind::kRange:
      out->append(range_repr(v.range()));
      break;
    case Kind::kView:
      append_view(render, out, v.view());
      break;
    case Kind::kIterator:
      out->append(address_text(iterator_kind(v.iterator()), v.object()));
      break;
    case Kind::kObject:
      out->append(v.native().repr(render));
      break;
  }
  render.meter.check_size(out->size());
}

std::string repr(Render& render, const Value& v) {
  std::string out;
  append_repr(render, &out, v);
  return out;
}

std::string str(Render& render, const Value& v) {
  if (v.is_string()) return v.text();
  if (v.is_undefined() || v.is_missing()) return "";
  return repr(render, v);
}

Value soft_str(Render& render, const Value& v) {
  return v.is_string() ? v : render.text(str(render, v));
}

std::string escape_html(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  for (const char c : s) {
    switch (c) {
      case '&':
        out.append("&amp;");
        break;
      case '<':
        out.append("&lt;");
        break;
      case '>':
        out.append("&gt;");
        break;
      case '\'':
        out.append("&#39;");
        break;
      case '"':
        out.append("&#34;");
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

std::string escaped_str(Render& render, const Value& v) {
  if (v.is_string() && v.string().markup) return v.text();
  std::string s = escape_html(str(render, v));
  render.meter.check_size(s.size());
  return s;
}

}  // namespace deltad::jinja
