// Calibration text: what a model reads while its variant is fitted. JSON lines of chats
// ({"messages": [{"role", "content"}, …]} or {"prompt", "answer"}), rendered by the model's chat
// template, or plain text. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "calibrate/layer_walk.h"
#include "text/text_assets.h"

namespace deltad {

// A small mixture of chats, code, prose, numbers and languages that the program brings along
// (mixed.jsonl).
std::string_view shipped_calibration_text();

struct CalibrationSet {
  std::vector<TokenSequence> fit;   // what signs and α are fitted to
  std::vector<TokenSequence> held;  // what the result is measured on
  std::string note;                 // to tell people, if the text is shorter than it should be

  int64_t fit_tokens() const;
  int64_t held_tokens() const;
};

struct CalibrationTokens {
  int64_t fit = 256;
  int64_t held = 256;
};

// content: JSON lines if its first character is '{', else plain text, which is cut into pieces. One
// sequence in eight is held out; of fewer, the last one; of a single one, its end. Of a longer
// text, so many tokens are taken, in sequences spread over all of it (one at least of each kind).
// kInvalidArgument names `path`, the line and what was expected.
Result<CalibrationSet> read_calibration(const TextAssets& text, const std::string& path,
                                        std::string_view content,
                                        const CalibrationTokens& tokens = {});

}  // namespace deltad
