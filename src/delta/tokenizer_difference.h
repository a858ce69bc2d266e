// Whether two tokenizers encode the same. Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace deltad {

// What the second has otherwise than the first ("token 512 is '<|x|>', the base has none"), or ""
// if they are the same: every token, its text and whether it is special, and a set of texts that
// pre-tokenizers, normalizers and post-processors treat in their own ways.
std::string tokenizer_difference(const Tokenizer& base, const Tokenizer& tuned);

// The merges of a tokenizer.json as "left right", in order; empty if it has none that can be read.
std::vector<std::string> merges_of(const std::string& tokenizer_json);

}  // namespace deltad
