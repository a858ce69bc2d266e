// Fuzzes the chat template engine: any text as a template, compiled and rendered with a fixed set
// of variables. Whatever happens must be a result or a message with a line.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "text/chat_template.h"

namespace {

const nlohmann::ordered_json& variables() {
  static const nlohmann::ordered_json kVariables = nlohmann::ordered_json::parse(R"({
    "messages": [
      {"role": "system", "content": "Be brief."},
      {"role": "user", "content": [{"type": "text", "text": "Größe? <b>\n"}, {"type": "image"}]},
      {"role": "assistant", "content": null, "tool_calls": [{"id": "123456789", "type": "function",
        "function": {"name": "add", "arguments": {"a": 1, "b": 2.5, "c": [true, null]}}}]},
      {"role": "tool", "tool_call_id": "123456789", "content": "3.5"}],
    "tools": [{"type": "function", "function": {"name": "add", "description": "Adds.",
      "parameters": {"type": "object", "properties": {"a": {"type": "integer", "enum": [1, 2]}},
                     "required": ["a"]}}}],
    "documents": null, "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>",
    "n": -3, "x": 2.5, "big": 18446744073709551615, "d": {"k": "v", "items": 1}, "e": []})");
  return kVariables;
}

void check_message(const deltad::Status& status) {
  if (std::string_view(status.message()).substr(0, 5) != "line ") std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  deltad::TemplateLimits limits;
  limits.steps = 50'000;
  limits.output_bytes = 1u << 18;
  auto compiled = deltad::ChatTemplate::compile(source, limits);
  if (!compiled.ok()) {
    check_message(compiled.status());
    return 0;
  }
  auto text = (*compiled)->render(variables(), 1720274709);
  if (!text.ok()) {
    check_message(text.status());
  } else if (text->size() > limits.output_bytes) {
    std::abort();
  }
  return 0;
}
