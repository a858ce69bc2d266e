// deltactl tokenize: JSON lines in ({"text": …} or a bare string), JSON lines out ({"ids",
// "text"}): the model's tokenizer, to be compared with another implementation. deltactl render: the
// same for its chat template ({"messages": […], …}).
#include <fmt/core.h>

#include <ctime>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "delta/checkpoint_text.h"
#include "deltactl/commands.h"
#include "deltactl/console.h"
#include "deltactl/model_session.h"

namespace deltad {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string model, file = "-";
  bool add_special = false, plain = false;
  int64_t now = -1;
};

Result<std::shared_ptr<const TextAssets>> open_text(const std::string& path) {
  ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::open(path));
  ASSIGN_OR_RETURN(auto text, checkpoint_text(*checkpoint));
  if (!text) return not_found(fmt::format("{}: no tokenizer.json", path));
  return text;
}

// Calls work with each line's JSON, and prints what it gives as a line.
Status for_each_line(const std::string& file,
                     const std::function<Result<Json>(const Json&)>& work) {
  std::ifstream opened;
  if (file != "-") {
    opened.open(file);
    if (!opened) return not_found(fmt::format("{}: cannot be read", file));
  }
  std::istream& in = file == "-" ? std::cin : opened;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    if (line.empty()) continue;
    const std::string where = fmt::format("{} line {}", file, number);
    const Json parsed = Json::parse(line, nullptr, false);
    if (parsed.is_discarded()) return invalid_argument(where + ": not valid JSON");
    const Result<Json> answer = work(parsed);
    if (!answer.ok()) return answer.status().in(where);
    fmt::print("{}\n", answer->dump(-1, ' ', true, Json::error_handler_t::replace));
  }
  return Status();
}

Result<int> run_tokenize(const Options& options) {
  ASSIGN_OR_RETURN(const auto text, open_text(options.model));
  EncodeOptions encode;
  encode.add_special = options.add_special;
  encode.parse_special = !options.plain;
  RETURN_IF_ERROR(for_each_line(options.file, [&](const Json& line) -> Result<Json> {
    const Json& value = line.is_object() && line.contains("text") ? line["text"] : line;
    if (!value.is_string())
      return invalid_argument("expected a string, or an object with a string \"text\"");
    const std::vector<int32_t> ids =
        text->tokenizer->encode(value.get_ref<const std::string&>(), encode);
    return Json{{"ids", ids}, {"text", text->tokenizer->decode(ids, false)}};
  }));
  return 0;
}

Result<int> run_render(const Options& options) {
  ASSIGN_OR_RETURN(const auto text, open_text(options.model));
  if (!text->chat_template)
    return invalid_argument(options.model + ": the model has no chat template");
  const int64_t now = options.now >= 0 ? options.now : static_cast<int64_t>(std::time(nullptr));
  RETURN_IF_ERROR(for_each_line(options.file, [&](const Json& line) -> Result<Json> {
    Json variables = line.is_array() ? Json{{"messages", line}} : line;
    if (!variables.is_object() || !variables.contains("messages"))
      return invalid_argument("expected a list of messages, or an object with \"messages\"");
    if (!variables.contains("add_generation_prompt")) variables["add_generation_prompt"] = true;
    if (!variables.contains("bos_token")) variables["bos_token"] = text->bos_token;
    if (!variables.contains("eos_token")) variables["eos_token"] = text->eos_token;
    ASSIGN_OR_RETURN(const std::string rendered, text->chat_template->render(variables, now));
    return Json{{"text", rendered}};
  }));
  return 0;
}

}  // namespace

void add_tokenize(Command& app, int* exit_code) {
  auto options = std::make_shared<Options>();
  static const bool json = false;
  Command* command = app.add_subcommand("tokenize", "Tokenize JSON lines with a model's tokenizer");
  command->add_option("model", options->model, "A model folder or .gguf file")->required();
  command->add_option("--texts", options->file,
                      "JSON lines, strings or {\"text\": …} (default: standard input)");
  command->add_flag("--add-special", options->add_special,
                    "Add what the tokenizer's post-processor adds");
  command->add_flag("--plain", options->plain, "Take special tokens in the text as plain text");
  run_command(command, exit_code, &json, [options] { return run_tokenize(*options); });
}

void add_render(Command& app, int* exit_code) {
  auto options = std::make_shared<Options>();
  static const bool json = false;
  Command* command =
      app.add_subcommand("render", "Render JSON lines of messages with a model's chat template");
  command->add_option("model", options->model, "A model folder or .gguf file")->required();
  command->add_option(
      "--messages", options->file,
      "JSON lines, lists of messages or {\"messages\": […], …} (default: standard input)");
  command->add_option("--now", options->now, "Unix time for strftime_now (default: the clock's)");
  run_command(command, exit_code, &json, [options] { return run_render(*options); });
}

}  // namespace deltad
