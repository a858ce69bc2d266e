// What deltactl eval says: figures as JSON, and for people. Main thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "eval/passages.h"

namespace deltad {

nlohmann::ordered_json exact_match_json(const std::vector<Question>& questions,
                                        const std::vector<std::string>& answers);
// has_reference: with KL and agreement.
nlohmann::ordered_json scores_json(const PassageScores& scores, bool has_reference);

// JSON lines {prompt, expected, text}.
Status write_answers(const std::string& path, const std::vector<Question>& questions,
                     const std::vector<std::string>& answers);

// results: one object a model: "model"; those of exact_match_json; "answers" and "text", of
// scores_json. One model's figures stand alone in JSON.
void print_eval(const nlohmann::ordered_json& results, bool json);

}  // namespace deltad
