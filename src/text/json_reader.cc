// JsonReader: see json_reader.h.
#include "text/json_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace deltad {
namespace {

const char* type_name(simdjson::dom::element_type type) {
  using Type = simdjson::dom::element_type;
  switch (type) {
    case Type::ARRAY:
      return "an array";
    case Type::OBJECT:
      return "an object";
    case Type::INT64:
    case Type::UINT64:
    case Type::DOUBLE:
      return "a number";
    case Type::STRING:
      return "a string";
    case Type::BOOL:
      return "a boolean";
    case Type::NULL_VALUE:
      return "null";
  }
  return "unknown";
}

// Takes everything, to learn where a document ends to be JSON.
struct ErrorPosition : nlohmann::json_sax<nlohmann::json> {
  size_t position = 0;
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return true; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t at, const std::string&, const nlohmann::json::exception&) override {
    position = at;
    return false;
  }
};

std::string where(std::string_view text) {
  ErrorPosition error;
  if (nlohmann::json::sax_parse(text.begin(), text.end(), &error)) return "";
  size_t end = std::min(error.position, text.size());
  std::string_view before = text.substr(0, end == 0 ? 0 : end - 1);
  size_t line = static_cast<size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
  size_t newline = before.rfind('\n');
  size_t column = before.size() - (newline == std::string_view::npos ? 0 : newline + 1) + 1;
  return fmt::format(" at line {}, column {}", line, column);
}

// The document with every integer of 19 digits or more as a floating-point number. Python writes
// integers of any size: a tokenizer without a limit has "model_max_length":
// 1000000000000000019884624838656.
std::string with_large_integers_as_doubles(std::string_view text) {
  constexpr size_t kDigits = 18;  // so many always fit in 64 bits
  std::string out;
  out.reserve(text.size() + 16);
  bool quoted = false;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (quoted && c == '\\' && i + 1 < text.size()) {
      out += text.substr(i, 2);
      i += 2;
      continue;
    }
    if (c == '"') quoted = !quoted;
    if (quoted || c < '0' || c > '9') {
      out += c;
      ++i;
      continue;
    }
    const size_t end = std::min(text.find_first_not_of("0123456789+-.eE", i), text.size());
    const std::string_view number = text.substr(i, end - i);
    out += number;
    if (number.size() > kDigits && number.find_first_of(".eE") == std::string_view::npos)
      out += "e0";
    i = end;
  }
  return out;
}

}  // namespace

std::string JsonReader::path_to(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

bool JsonReader::has(std::string_view key) const {
  simdjson::dom::object object;
  return value_.get(object) == simdjson::SUCCESS && object.at_key(key).error() == simdjson::SUCCESS;
}

std::optional<JsonReader> JsonReader::find(std::string_view key) const {
  simdjson::dom::object object;
  simdjson::dom::element value;
  if (value_.get(object) != simdjson::SUCCESS) return std::nullopt;
  if (object.at_key(key).get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  return JsonReader(value, path_to(key));
}

Result<JsonReader> JsonReader::member(std::string_view key) const {
  if (!value_.is_object()) return wrong_type("an object");
  if (auto found = find(key)) return *found;
  return invalid_argument(fmt::format("{} is missing", path_to(key)));
}

Status JsonReader::wrong_type(std::string_view expected) const {
  return invalid_argument(fmt::format("{} is {}, {} was expected",
                                      path_.empty() ? "the document" : path_,
                                      type_name(value_.type()), expected));
}

Result<std::string_view> JsonReader::string() const {
  std::string_view value;
  if (value_.get(value) != simdjson::SUCCESS) return wrong_type("a string");
  return value;
}

Result<bool> JsonReader::boolean() const {
  bool value = false;
  if (value_.get(value) != simdjson::SUCCESS) return wrong_type("a boolean");
  return value;
}

Result<int64_t> JsonReader::integer() const {
  int64_t value = 0;
  if (value_.get(value) != simdjson::SUCCESS) return wrong_type("an integer");
  return value;
}

Result<double> JsonReader::number() const {
  double value = 0;
  if (value_.get(value) != simdjson::SUCCESS) return wrong_type("a number");
  return value;
}

Result<simdjson::dom::object> JsonReader::object() const {
  simdjson::dom::object value;
  if (value_.get(value) != simdjson::SUCCESS) return wrong_type("an object");
  return value;
}

Result<simdjson::dom::array> JsonReader::array() const {
  simdjson::dom::array value;
  if (value_.get(value) != simdjson::SUCCESS) return wrong_type("an array");
  return value;
}

Result<std::string_view> JsonReader::string(std::string_view key) const {
  ASSIGN_OR_RETURN(JsonReader value, member(key));
  return value.string();
}

Result<bool> JsonReader::boolean(std::string_view key) const {
  ASSIGN_OR_RETURN(JsonReader value, member(key));
  return value.boolean();
}

Result<bool> JsonReader::boolean_or(std::string_view key, bool absent) const {
  auto value = find(key);
  if (!value) return absent;
  return value->boolean();
}

Result<std::string_view> JsonReader::string_or(std::string_view key,
                                               std::string_view absent) const {
  auto value = find(key);
  if (!value) return absent;
  return value->string();
}

Result<simdjson::dom::element> parse_json(simdjson::dom::parser& parser, std::string_view text) {
  simdjson::dom::element document;
  auto error = parser.parse(text.data(), text.size()).get(document);
  if (error == simdjson::NUMBER_ERROR)
    error = parser.parse(with_large_integers_as_doubles(text)).get(document);
  if (error != simdjson::SUCCESS) {
    return invalid_argument(
        fmt::format("not JSON{}: {}", where(text), simdjson::error_message(error)));
  }
  return document;
}

}  // namespace deltad
