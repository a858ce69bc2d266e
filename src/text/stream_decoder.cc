// StreamDecoder: see stream_decoder.h.
#include "text/stream_decoder.h"

#include <algorithm>

#include "text/utf8.h"

namespace deltad {

StreamDecoder::StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer,
                             std::vector<std::string> stop_strings, bool skip_special,
                             bool include_stop)
    : tokenizer_(std::move(tokenizer)), skip_special_(skip_special), include_stop_(include_stop) {
  for (std::string& text : stop_strings) {
    if (text.empty() || !is_utf8(text)) continue;  // the latter is in no text
    Stop stop{std::move(text), {0}, 0};
    for (size_t i = 1; i < stop.text.size(); ++i) {
      advance(stop, stop.text[i]);
      stop.fallback.push_back(stop.matched);
    }
    stop.matched = 0;
    stops_.push_back(std::move(stop));
  }
}

void StreamDecoder::advance(Stop& stop, char byte) {
  while (stop.matched > 0 && stop.text[stop.matched] != byte) {
    stop.matched = stop.fallback[stop.matched - 1];
  }
  if (stop.text[stop.matched] == byte) ++stop.matched;
}

std::string StreamDecoder::push(int32_t id) {
  if (stopped_ || (skip_special_ && tokenizer_->is_special(id))) return "";
  bytes_ += tokenizer_->token_bytes(id);
  return release(/*at_end=*/false);
}

std::string StreamDecoder::finish() { return stopped_ ? "" : release(/*at_end=*/true); }

std::string StreamDecoder::release(bool at_end) {
  size_t certain = at_end ? bytes_.size() : utf8_certain_prefix(bytes_);
  size_t end = text_.size();
  append_repaired(text_, std::string_view(bytes_).substr(0, certain));
  bytes_.erase(0, certain);

  while (end < text_.size() && !stopped_) {
    char byte = text_[end++];
    for (Stop& stop : stops_) {
      advance(stop, byte);
      if (stop.matched < stop.text.size()) continue;
      stopped_ = true;
      if (stop.text.size() > matched_.size()) matched_ = stop.text;
    }
  }
  if (stopped_) {
    std::string out = text_.substr(0, include_stop_ ? end : end - matched_.size());
    text_.clear();
    bytes_.clear();
    return out;
  }

  size_t held = 0;  // the beginning of a stop string that the text ends with
  for (const Stop& stop : stops_) held = std::max(held, at_end ? 0 : stop.matched);
  std::string out = text_.substr(0, text_.size() - held);
  text_.erase(0, out.size());
  return out;
}

}  // namespace deltad
