// StreamDecoder: turns one sequence's tokens into text as they come. Bytes of an unfinished
// character are held back until it is whole, and text that may be the beginning of a stop string
// until it is decided. The pieces together equal the text decoded at once. Used by one thread at a
// time (the request's I/O thread).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace deltad {

class StreamDecoder {
 public:
  StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::string> stop_strings,
                bool skip_special, bool include_stop);

  // Feeds a token; returns the text that became certain. After stopped() nothing more comes.
  std::string push(int32_t id);
  // The end: everything held back, an unfinished character as U+FFFD. Empty if stopped().
  std::string finish();
  bool stopped() const { return stopped_; }
  const std::string& stop_string() const { return matched_; }  // the one that matched

 private:
  std::string release(bool at_end);

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<std::string> stops_;
  bool skip_special_, include_stop_;
  bool stopped_ = false;
  std::string matched_;
  std::string bytes_;  // not yet whole characters
  std::string text_;   // whole, held back for a possible stop string
};

}  // namespace deltad
