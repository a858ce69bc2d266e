// JsonReader: a value in a JSON document with the path to it, so that an error says where it is.
// The document's parser must outlive it.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace deltad {

class JsonReader {
 public:
  JsonReader(simdjson::dom::element value, std::string path)
      : value_(value), path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  // The path below this value: "model.vocab".
  std::string path_to(std::string_view key) const;

  bool has(std::string_view key) const;                        // null counts
  std::optional<JsonReader> find(std::string_view key) const;  // absent and null: none
  Result<JsonReader> member(std::string_view key) const;

  // kInvalidArgument: "PATH is a number, a string was expected".
  Result<std::string_view> string() const;
  Result<bool> boolean() const;
  Result<int64_t> integer() const;
  Result<double> number() const;  // an integer counts as a number
  bool is_string() const { return value_.is_string(); }
  bool is_array() const { return value_.is_array(); }
  Result<simdjson::dom::object> object() const;
  Result<simdjson::dom::array> array() const;

  // member(key).string() and so on.
  Result<std::string_view> string(std::string_view key) const;
  Result<bool> boolean(std::string_view key) const;
  Result<bool> boolean_or(std::string_view key, bool absent) const;
  Result<std::string_view> string_or(std::string_view key, std::string_view absent) const;

  Status wrong_type(std::string_view expected) const;

 private:
  simdjson::dom::element value_;
  std::string path_;
};

// Parses a document; the error says line and column.
Result<simdjson::dom::element> parse_json(simdjson::dom::parser& parser, std::string_view text);

}  // namespace deltad
