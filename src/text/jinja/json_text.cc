#include "text/jinja/json_text.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "text/jinja/compare.h"
#include "text/jinja/number_text.h"
#include "text/jinja/repr.h"
#include "text/jinja/unicode.h"

namespace deltad::jinja {

namespace {

using Json = nlohmann::ordered_json;

Value string_from(const std::string& s) {
  if (!utf8_valid(s)) fail("a string of the variables is not valid UTF-8");
  return Value::of(Kind::kString, new String(nullptr, s, false));
}

Value from_json(const Json& json, int depth) {
  constexpr int kMaxDepth = 200;
  if (depth > kMaxDepth) fail(fmt::format("variables nested deeper than {}", kMaxDepth));
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::integer(json.get<int64_t>());
    case Json::value_t::number_unsigned:
      return Value::integer(json.get<uint64_t>());
    case Json::value_t::number_float:
      return Value::real(json.get<double>());
    case Json::value_t::string:
      return string_from(json.get_ref<const std::string&>());
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(from_json(item, depth + 1));
      return Value::of(Kind::kList, new List(nullptr, std::move(items), false));
    }
    case Json::value_t::object: {
      Entries entries;
      entries.reserve(json.size());
      for (const auto& [key, value] : json.items()) {
        entries.emplace_back(string_from(key), from_json(value, depth + 1));
      }
      std::unordered_multimap<size_t, size_t> index;
      if (entries.size() > kIndexedDictSize) {
        for (size_t i = 0; i < entries.size(); ++i) {
          index.emplace(hash_text(entries[i].first.text()), i);
        }
      }
      return Value::of(Kind::kDict, new Dict(nullptr, std::move(entries), std::move(index)));
    }
    default:
      return Value();
  }
}

class JsonWriter {
 public:
  JsonWriter(Render& render, const JsonStyle& style) : render_(render), style_(style) {}

  std::string run(const Value& v) {
    write(v, 0);
    return std::move(out_);
  }

 private:
  void write(const Value& v, int depth) {
    const Level level(&render_.meter.nesting, render_.meter.max_nesting(), "values");
    render_.meter.step();
    switch (v.kind()) {
      case Kind::kNone:
        out_ += "null";
        break;
      case Kind::kBool:
        out_ += v.as_bool() ? "true" : "false";
        break;
      case Kind::kInt:
        out_ += int_text(v.as_int());
        break;
      case Kind::kFloat:
        out_ += number(v.as_float());
        break;
      case Kind::kString:
        string(v.text());
        break;
      case Kind::kList:
      case Kind::kTuple:
        array(v.items(), depth);
        break;
      case Kind::kDict:
        object(v.dict(), depth);
        break;
      default:
        fail(fmt::format("Object of type {} is not JSON serializable", short_type(v)));
    }
    render_.meter.check_size(out_.size());
  }

  static std::string short_type(const Value& v) {
    const std::string name = type_name(v);
    const size_t dot = name.rfind('.');
    return dot == std::string::npos ? name : name.substr(dot + 1);
  }

  static std::string number(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
    return float_text(d);
  }

  void escape(char32_t c) {
    if (c >= 0x10000) {
      escape(0xd800 + ((c - 0x10000) >> 10));
      c = 0xdc00 + ((c - 0x10000) & 0x3ff);
    }
    out_ += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
  }

  void string(const std::string& s) {
    render_.meter.work(s.size());
    out_.push_back('"');
    for (size_t at = 0; at < s.size();) {
      const auto c = static_cast<unsigned char>(s[at]);
      if (c >= 0x80 && style_.ascii) {
        escape(utf8_next(s, &at));
        continue;
      }
      ++at;
      switch (c) {
        case '"':
          out_ += "\\\"";
          break;
        case '\\':
          out_ += "\\\\";
          break;
        case '\n':
          out_ += "\\n";
          break;
        case '\r':
          out_ += "\\r";
          break;
        case '\t':
          out_ += "\\t";
          break;
        case '\b':
          out_ += "\\b";
          break;
        case '\f':
          out_ += "\\f";
          break;
        default:
          if (c < 0x20) {
            escape(c);
          } else {
            out_.push_back(static_cast<char>(c));
          }
      }
    }
    out_.push_back('"');
  }

  void new_line(int depth) {
    if (!style_.indent) return;
    out_.push_back('\n');
    for (int i = 0; i < depth; ++i) {
      render_.meter.check_size(out_.size() + style_.indent->size());
      out_ += *style_.indent;
    }
  }

  void array(const std::vector<Value>& items, int depth) {
    if (items.empty()) {
      out_ += "[]";
      return;
    }
    out_.push_back('[');
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line(depth + 1);
      write(items[i], depth + 1);
    }
    new_line(depth);
    out_.push_back(']');
  }

  std::string key_text(const Value& key) {
    switch (key.kind()) {
      case Kind::kString:
        return key.text();
      case Kind::kInt:
        return int_text(key.as_int());
      case Kind::kFloat:
        return number(key.as_float());
      case Kind::kBool:
        return key.as_bool() ? "true" : "false";
      case Kind::kNone:
        return "null";
      default:
        fail(fmt::format("keys must be str, int, float, bool or None, not {}", short_type(key)));
    }
  }

  void object(const Dict& dict, int depth) {
    if (dict.entries.empty()) {
      out_ += "{}";
      return;
    }
    std::vector<const Entries::value_type*> order;
    order.reserve(dict.entries.size());
    for (const auto& entry : dict.entries) order.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(order.begin(), order.end(), [&](const auto* a, const auto* b) {
        return ordered(render_, Order::kLess, a->first, b->first);
      });
    }
    out_.push_back('{');
    bool first = true;
    for (const auto* entry : order) {
      if (!first) out_ += style_.item_separator;
      first = false;
      new_line(depth + 1);
      string(key_text(entry->first));
      out_ += style_.key_separator;
      write(entry->second, depth + 1);
    }
    new_line(depth);
    out_.push_back('}');
  }

  Render& render_;
  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

Value from_json(const Json& json) { return from_json(json, 0); }

std::string to_json(Render& render, const Value& v, const JsonStyle& style) {
  return JsonWriter(render, style).run(v);
}

}  // namespace deltad::jinja
