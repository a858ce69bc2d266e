#include "server/openai/json_reader.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace deltad {
namespace {

// Builds the value while the parser (which does not recurse) reads. Keys are appended without a
// look-up, which would be quadratic, and compared when their object ends.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  Builder(const JsonLimits& limits, Json* root) : limits_(limits), root_(root) {}

  const std::string& problem() const { return problem_; }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(int64_t value) override { return add(value); }
  bool number_unsigned(uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(Json::binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool key(std::string& name) override {
    key_ = std::move(name);
    return true;
  }
  bool end_array() override {
    stack_.pop_back();
    return true;
  }
  bool end_object() override {
    const auto& members = stack_.back()->get_ref<const Json::object_t&>();
    stack_.pop_back();
    if (members.size() < 2) return true;
    std::unordered_set<std::string_view> names;
    names.reserve(members.size());
    for (const auto& [name, value] : members) {
      if (!names.insert(name).second) return fail("an object has the same key twice");
    }
    return true;
  }
  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    return fail(fmt::format("syntax error or invalid UTF-8 at byte {}", position));
  }

 private:
  bool fail(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
    return false;
  }

  template <typename T>
  bool add(T&& value) {
    return place(Json(std::forward<T>(value))) != nullptr;
  }

  bool open(Json container) {
    if (static_cast<int>(stack_.size()) >= limits_.depth) {
      return fail(fmt::format("nested more than {} levels deep", limits_.depth));
    }
    Json* placed = place(std::move(container));
    if (placed == nullptr) return false;
    stack_.push_back(placed);
    return true;
  }

  Json* place(Json value) {
    if (++values_ > limits_.values) {
      fail(fmt::format("more than {} values", limits_.values));
      return nullptr;
    }
    if (stack_.empty()) {
      *root_ = std::move(value);
      return root_;
    }
    Json& parent = *stack_.back();
    if (parent.is_array()) {
      auto& elements = parent.get_ref<Json::array_t&>();
      return &elements.emplace_back(std::move(value));
    }
    auto& members = parent.get_ref<Json::object_t&>();
    return &members.emplace_back(std::move(key_), std::move(value)).second;
  }

  const JsonLimits limits_;
  Json* root_;
  std::vector<Json*> stack_;  // open containers; a parent does not grow while its child is open
  std::string key_, problem_;
  size_t values_ = 0;
};

}  // namespace

ApiError parse_json(std::string_view text, const std::string& param, Json* out,
                    const JsonLimits& limits) {
  Builder builder(limits, out);
  if (Json::sax_parse(text.begin(), text.end(), &builder)) return {};
  *out = Json();
  ApiError error;
  error.status = 400;
  error.code = "invalid_json";
  if (!param.empty()) error.param = param;
  error.message =
      fmt::format("{} is not valid JSON: {}.",
                  param.empty() ? "The request's body" : "'" + param + "'", builder.problem());
  return error;
}

}  // namespace deltad
