// Tokenizer: byte-level BPE, equal to the `tokenizers` library on every string. Built from
// tokenizer.json or from GGUF metadata. Immutable; any number of threads may encode and decode at
// once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace deltad {

class GgufFile;

struct EncodeOptions {
  bool add_special = false;   // what the post-processor adds (begin token …)
  bool parse_special = true;  // special tokens in the text become their ids; false: plain text
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // kUnimplemented names a model, pre-tokenizer, normalizer or decoder that is not supported;
  // kInvalidArgument says where the JSON is wrong.
  static Result<std::shared_ptr<const Tokenizer>> from_json(std::string_view tokenizer_json);
  static Result<std::shared_ptr<const Tokenizer>> from_gguf(const GgufFile& file);

  // text: any bytes; invalid UTF-8 is replaced by U+FFFD first, as a JSON reader would. Never
  // fails.
  virtual std::vector<int32_t> encode(std::string_view text,
                                      const EncodeOptions& options) const = 0;
  // The whole list as text; invalid UTF-8 becomes U+FFFD, one per maximal invalid part.
  virtual std::string decode(std::span<const int32_t> ids, bool skip_special) const = 0;
  // The bytes a token stands for in running text (may be part of a character); "" for an id that
  // does not exist.
  virtual std::string token_bytes(int32_t id) const = 0;
  // The token as the vocabulary spells it ("Ġthe"); "" for an id that does not exist.
  virtual std::string token_text(int32_t id) const = 0;
  virtual int32_t token_id(std::string_view token) const = 0;  // -1 if none
  virtual bool is_special(int32_t id) const = 0;
  virtual int32_t vocab_size() const = 0;  // highest id + 1
};

// tokenizer_of a GGUF as files that the hub's libraries read (deltactl apply writes them):
// tokenizer.json.
Result<std::string> gguf_tokenizer_json(const GgufFile& file);

}  // namespace deltad
