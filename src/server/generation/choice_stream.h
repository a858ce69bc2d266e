// ChoiceStream: turns the token events of one choice into pieces that may be sent: text that is
// certain, and with it the log-probabilities and ids of the tokens that it came from. The pieces'
// text together is the choice's text, and so are the texts of their tokens. Belongs to the line of
// work of its exchange.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/request.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace deltad {

struct TopToken {
  std::string text, bytes;
  float logprob = 0;
};

struct TokenText {
  std::string text;   // what became certain with this token; "" while a character is unfinished
  std::string bytes;  // the token's own; "" if it is special and skipped
  std::optional<float> logprob;  // none: the first token of a prompt
  std::vector<TopToken> top;
  size_t offset = 0;  // characters of the text before it
};

struct Piece {
  std::string text;
  std::vector<TokenText> tokens;  // if log-probabilities were asked for
  std::vector<int32_t> ids;

  void append(Piece more);
};

struct ChoiceOptions {
  std::vector<std::string> stop;
  bool skip_special = true;
  bool include_stop = false;
  bool logprobs = false;
};

class ChoiceStream {
 public:
  // offset: characters of an echoed prompt.
  ChoiceStream(std::shared_ptr<const Tokenizer> tokenizer, const ChoiceOptions& options,
               size_t offset);

  void push(const TokenEvent& event);
  bool stopped() const { return decoder_.stopped(); }  // by a stop string: nothing more comes
  void finish();                                       // no more tokens
  int32_t tokens() const { return tokens_; }

  bool has_text() const { return !ready_.empty(); }
  // What is certain now. After finish() that is all there is.
  Piece take();

 private:
  struct Held {
    TokenText token;
    size_t in_top = SIZE_MAX;  // where the token itself stands among its top tokens
    size_t begin, end;         // bytes of the text as it would be without stop strings
  };
  static void release(Held& held, Piece* piece);

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const bool logprobs_, skip_special_;
  StreamDecoder decoder_;
  StreamDecoder plain_;  // without stop strings: which text is which token's
  std::string ready_;
  std::deque<Held> held_;
  std::vector<int32_t> ids_;
  size_t plain_bytes_ = 0, taken_bytes_ = 0;
  size_t characters_ = 0;
  int32_t tokens_ = 0;
  bool finished_ = false;
};

// The token's text by itself, for lists of alternatives.
TopToken top_token(const Tokenizer& tokenizer, const TokenLogprob& entry);

// Of a prompt that is echoed: its tokens, which together are the text of those from text_begin to
// text_end. event: kPromptLogprobs.
std::vector<TokenText> prompt_tokens(const std::shared_ptr<const Tokenizer>& tokenizer,
                                     const std::vector<int32_t>& ids, size_t text_begin,
                                     size_t text_end, const TokenEvent& event);

size_t count_characters(std::string_view utf8);

}  // namespace deltad
