// StreamDecoder: turns one sequence's tokens into text as they come. Bytes of an unfinished
// character are held back until it is whole, and text that may be the beginning of a stop string
// until it is decided. The pieces together equal the text decoded at once. Of several stop strings
// the one that is complete first counts, and of those that end together the longest; this does not
// depend on how the text is cut into tokens. Used by one thread at a time (the request's I/O
// thread).
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
  // A stop string and how much of its beginning the text so far ends with. fallback[i]: the same
  // for the longest beginning shorter than i + 1 that its first i + 1 bytes end with.
  struct Stop {
    std::string text;
    std::vector<size_t> fallback;
    size_t matched = 0;
  };
  static void advance(Stop& stop, char byte);
  std::string release(bool at_end);

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<Stop> stops_;
  bool skip_special_, include_stop_;
  bool stopped_ = false;
  std::string matched_;
  std::string bytes_;  // not yet whole characters
  std::string text_;   // whole, held back for a possible stop string
};

}  // namespace deltad
