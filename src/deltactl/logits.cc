// deltactl logits: what the model computes for a list of token ids, as fp32 tensors in a
// safetensors file, to be compared with another implementation: `logits` [T, vocab], and with
// --hidden `hidden.embed`, `hidden.layer.N`, `hidden.norm` [T, H].
#include <fmt/core.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "deltactl/commands.h"
#include "deltactl/console.h"
#include "deltactl/model_session.h"
#include "engine/direct_runner.h"
#include "io/safetensors.h"
#include "tensor/float16.h"

namespace deltad {
namespace {

constexpr int64_t kChunk = 256;  // rows of one step

struct Options {
  ModelOptions model;
  std::string ids, ids_file, out;
  bool hidden = false;
  bool json = false;
};

// "1,2,3" or one id a line.
Result<std::vector<int32_t>> parse_ids(const std::string& text, int64_t vocab) {
  std::vector<int32_t> ids;
  std::string word;
  std::string spaced = text;
  for (char& c : spaced)
    if (c == ',') c = ' ';
  std::istringstream words(spaced);
  while (words >> word) {
    size_t end = 0;
    long value = -1;
    try {
      value = std::stol(word, &end);
    } catch (const std::exception&) {
      end = 0;
    }
    if (end != word.size() || value < 0 || value >= vocab)
      return invalid_argument(
          fmt::format("token id '{}': expected a whole number from 0 to {}", word, vocab - 1));
    ids.push_back(static_cast<int32_t>(value));
  }
  if (ids.empty()) return invalid_argument("no token ids: give --ids 1,2,3 or --ids-file FILE");
  return ids;
}

std::string hidden_name(int index, int64_t layers) {
  if (index < 0) return "hidden.embed";
  return index == layers ? "hidden.norm" : fmt::format("hidden.layer.{}", index);
}

// A row of fp32 or bf16 as fp32.
void to_f32(const TensorView& from, int64_t row, float* out) {
  const int64_t columns = from.shape[1];
  if (from.dtype == DType::kF32) {
    std::copy_n(from.row<float>(row), columns, out);
  } else {
    for (int64_t c = 0; c < columns; ++c) out[c] = bf16_to_f32(from.row<uint16_t>(row)[c]);
  }
}

Result<int> run(const Options& options) {
  if (options.ids.empty() == options.ids_file.empty())
    return invalid_argument("give either --ids or --ids-file");
  std::string text = options.ids;
  if (!options.ids_file.empty()) {
    ASSIGN_OR_RETURN(text, read_file(options.ids_file));
  }
  ASSIGN_OR_RETURN(ModelSession session, open_session(options.model));
  const ModelConfig& config = session.base->config();
  const VariantRef variant = session.variants.empty() ? nullptr : session.variants[0];
  const int64_t vocab = variant ? variant->vocab : config.vocab;
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, parse_ids(text, vocab));
  const int64_t t = static_cast<int64_t>(ids.size());

  std::vector<SafetensorsWriter::Tensor> tensors = {{"logits", DType::kF32, Shape{t, vocab}}};
  if (options.hidden)
    for (int i = -1; i <= config.layers; ++i)
      tensors.push_back({hidden_name(i, config.layers), DType::kF32, Shape{t, config.hidden}});
  ASSIGN_OR_RETURN(auto writer, SafetensorsWriter::create(options.out, {}, tensors));
  ASSIGN_OR_RETURN(auto runner, DirectRunner::make(config, session.base->table,
                                                   *session.base->backend, {variant}, t, kChunk));

  int64_t at = 0;
  Status written;
  std::vector<float> row(static_cast<size_t>(std::max(vocab, config.hidden)));
  const auto write_rows = [&](const std::string& name, const TensorView& values, int64_t columns) {
    for (int64_t r = 0; r < values.rows() && written.ok(); ++r) {
      to_f32(values, r, row.data());
      const int64_t bytes = columns * static_cast<int64_t>(sizeof(float));
      written = writer->write(name, (at + r) * bytes, row.data(), bytes);
    }
  };
  const Transformer::Observer observer = [&](int index, TensorView hidden) {
    write_rows(hidden_name(index, config.layers), hidden, config.hidden);
  };
  ProgressBar bar("computing");
  while (at < t) {
    const int64_t n = std::min(kChunk, t - at);
    ASSIGN_OR_RETURN(
        const Logits logits,
        runner->append(0, std::span(ids).subspan(static_cast<size_t>(at), static_cast<size_t>(n)),
                       true, options.hidden ? &observer : nullptr));
    TensorView values = logits.values;
    values.shape[1] = vocab;
    write_rows("logits", values, vocab);
    RETURN_IF_ERROR(written);
    at += n;
    bar.update(at, t);
  }
  RETURN_IF_ERROR(writer->finish());
  if (options.json)
    print_json(
        {{"file", options.out}, {"tokens", t}, {"vocab", vocab}, {"hidden", options.hidden}});
  else
    fmt::print("{}: logits [{}, {}]{}\n", options.out, t, vocab,
               options.hidden ? fmt::format(" and {} hidden states [{}, {}]", config.layers + 2, t,
                                            config.hidden)
                              : "");
  return 0;
}

}  // namespace

void add_logits(Command& app, int* exit_code) {
  auto options = std::make_shared<Options>();
  Command* command = app.add_subcommand(
      "logits", "Write the logits (and hidden states) for token ids, to compare with others");
  add_model_options(command, &options->model, false);
  command->add_option("--ids", options->ids, "Token ids: 1,2,3");
  command->add_option("--ids-file", options->ids_file,
                      "A file of token ids, separated by commas or white space");
  command->add_option("-o,--output", options->out, "The safetensors file to write")->required();
  command->add_flag("--hidden", options->hidden, "Also the hidden state after each layer");
  add_json_option(command, &options->json);
  run_command(command, exit_code, &options->json, [options] { return run(*options); });
}

}  // namespace deltad
