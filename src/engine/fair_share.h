// The rows of one step that prompts are owed beside generating rows, when a step cannot take all:
// max-min fair shares of the step by weight. Plain arithmetic.
#pragma once

#include <vector>

namespace deltad {

// What a flow could use of a step, as fractions of the step.
struct ShareDemand {
  double weight = 1;
  double generating = 0;
  double prompt = 0;
};

struct SharedOut {
  double prompts = 0;  // what the flows' prompts get
  double left = 0;     // what nobody could use
};

// `capacity` is shared out by weight, nobody gets more than it can use, and each flow's generating
// rows come before its prompts. open_weight: of further flows that have only prompts, more than
// fit.
SharedOut share_out(std::vector<ShareDemand> demands, double open_weight, double capacity);

}  // namespace deltad
