#include "server/generation/choice_stream.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace deltad {
namespace {

// JSON has no infinity, and rounding may give a hair above 0.
float printable(float logprob) {
  if (!(logprob > -9999.0f)) return -9999.0f;
  return logprob < 0 ? logprob : 0.0f;
}

}  // namespace

size_t count_characters(std::string_view utf8) {
  return static_cast<size_t>(std::count_if(utf8.begin(), utf8.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

TopToken top_token(const Tokenizer& tokenizer, const TokenLogprob& entry) {
  return {tokenizer.decode(std::span(&entry.id, 1), false), tokenizer.token_bytes(entry.id),
          printable(entry.logprob)};
}

void Piece::append(Piece more) {
  text += more.text;
  std::move(more.tokens.begin(), more.tokens.end(), std::back_inserter(tokens));
  ids.insert(ids.end(), more.ids.begin(), more.ids.end());
}

ChoiceStream::ChoiceStream(std::shared_ptr<const Tokenizer> tokenizer, const ChoiceOptions& options,
                           size_t offset)
    : tokenizer_(std::move(tokenizer)),
      logprobs_(options.logprobs),
      skip_special_(options.skip_special),
      decoder_(tokenizer_, options.stop, options.skip_special, options.include_stop),
      plain_(tokenizer_, {}, options.skip_special, false),
      characters_(offset) {}

void ChoiceStream::push(const TokenEvent& event) {
  ++tokens_;
  ids_.push_back(event.token);
  ready_ += decoder_.push(event.token);
  if (!logprobs_) return;
  Held held;
  held.token.text = plain_.push(event.token);
  const bool skipped = skip_special_ && tokenizer_->is_special(event.token);
  if (!skipped) held.token.bytes = tokenizer_->token_bytes(event.token);
  held.token.logprob = printable(event.logprob);
  for (const TokenLogprob& entry : event.top) {
    if (entry.id == event.token) held.in_top = held.token.top.size();
    held.token.top.push_back(top_token(*tokenizer_, entry));
  }
  held.token.offset = characters_;
  characters_ += count_characters(held.token.text);
  held.begin = plain_bytes_;
  plain_bytes_ += held.token.text.size();
  held.end = plain_bytes_;
  held_.push_back(std::move(held));
}

void ChoiceStream::finish() {
  finished_ = true;
  ready_ += decoder_.finish();
  if (!logprobs_ || held_.empty() || stopped()) return;
  const std::string rest = plain_.finish();  // an unfinished character, as U+FFFD
  held_.back().token.text += rest;
  plain_bytes_ += rest.size();
  held_.back().end = plain_bytes_;
}

Piece ChoiceStream::take() {
  Piece piece;
  piece.text.swap(ready_);
  piece.ids.swap(ids_);
  taken_bytes_ += piece.text.size();
  while (!held_.empty()) {
    Held& first = held_.front();
    if (first.end > taken_bytes_) {
      if (!finished_) break;
      // The stop string cut this token, or lies before it: only what was sent counts.
      if (first.begin >= taken_bytes_) {
        held_.clear();
        break;
      }
      const size_t kept = taken_bytes_ - first.begin;
      first.token.text.resize(kept);
      if (first.token.bytes.size() > kept) first.token.bytes.resize(kept);
      release(first, &piece);
      held_.clear();
      break;
    }
    release(first, &piece);
    held_.pop_front();
  }
  return piece;
}

// Among its alternatives the token is called what it is called itself.
void ChoiceStream::release(Held& held, Piece* piece) {
  if (held.in_top < held.token.top.size()) held.token.top[held.in_top].text = held.token.text;
  piece->tokens.push_back(std::move(held.token));
}

std::vector<TokenText> prompt_tokens(const std::shared_ptr<const Tokenizer>& tokenizer,
                                     const std::vector<int32_t>& ids, size_t text_begin,
                                     size_t text_end, const TokenEvent& event) {
  StreamDecoder plain(tokenizer, {}, false, false);
  std::vector<TokenText> tokens(ids.size());
  size_t characters = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    TokenText& token = tokens[i];
    if (i >= text_begin && i < text_end) token.text = plain.push(ids[i]);
    if (i + 1 == text_end) token.text += plain.finish();
    token.bytes = tokenizer->token_bytes(ids[i]);
    token.offset = characters;
    characters += count_characters(token.text);
    if (i == 0) continue;
    if (i - 1 < event.prompt.size()) token.logprob = printable(event.prompt[i - 1].logprob);
    if (i - 1 < event.prompt_top.size()) {
      for (const TokenLogprob& entry : event.prompt_top[i - 1]) {
        token.top.push_back(top_token(*tokenizer, entry));
      }
    }
  }
  return tokens;
}

}  // namespace deltad
