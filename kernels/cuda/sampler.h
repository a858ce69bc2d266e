// From logits to tokens, a block a row: changes of single logits (bias, barred tokens, penalties),
// temperature, top_k, top_p, min_p, and a choice by Philox(seed, choice, position). No sort: what
// stays is a prefix of the order "larger logit first, of equal ones the lower id", and its end is
// found digit by digit. All sums that decide are integers, of weights in units of 2^-40, so a row's
// result depends on nothing but that row: not on the order in which threads add.
//
// The choice runs through the tokens that stayed by id.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"

namespace deltad::cuda {

// One a token. −∞ as bias bars it.
struct LogitChange {
  int32_t token;  // below the vocabulary
  float bias;
  int32_t count;  // times in the output; 0: in the prompt only; −1: no penalties
};

struct SampleRow {
  int32_t vocabulary;  // at most 2^22; logits of the row beyond are not read
  float temperature;   // below kGreedyTemperature: the largest logit
  float top_p, min_p;
  int32_t top_k;  // 0: all
  float repetition_penalty, frequency_penalty, presence_penalty;
  uint64_t seed, position;
  uint32_t choice;
  int32_t changes;       // where in SamplerParams::changes the row's begin
  int32_t change_count;  // how many there are
  int32_t count_tokens;  // whether the chosen token is counted there; then there is room for one
  int32_t top;           // log-probabilities: −1 none, else how many of the best ones
  int32_t given;         // −1, or the token whose log-probability is wanted; then none is chosen
};

enum class SampleStatus : int32_t {
  kOk,
  kNotFinite,  // a logit is no finite number
  kAllBarred,  // no token is left
};

struct SampleResult {
  int32_t token;
  SampleStatus status;
  float logprob;         // of the unchanged logits; 0 without
  int32_t change_count;  // after counting the token
};

struct TopToken {
  int32_t token;
  float logprob;
};

struct SamplerParams {
  float* logits;        // [rows, logits_stride]; changed in place
  const SampleRow* in;  // [rows]
  LogitChange* changes;
  float* unchanged;       // as many as changes: logits before
  SampleResult* results;  // [rows]
  TopToken* tops;         // [rows, kMaxTop], best first
  int64_t logits_stride;
  int32_t rows;
};

constexpr float kGreedyTemperature = 1e-5f;
constexpr int32_t kMaxTop = 32;
constexpr uint32_t kSamplerThreads = 512;
constexpr int32_t kSamplerWarps = kSamplerThreads / 32;
constexpr int32_t kSelectBins = 2048;
constexpr char kSamplerKernel[] = "deltad_sampler";

// Two values a warp, a digit's place and sums, two halves of a bin, the best tokens and their
// number.
constexpr uint32_t kSamplerShared =
    2 * 8 * kSamplerWarps + 32 + 2 * 4 * kSelectBins + 8 * kMaxTop + 16;

inline Launch sampler_launch(const SamplerParams& p) {
  return {{static_cast<uint32_t>(p.rows)}, {kSamplerThreads}, kSamplerShared};
}

}  // namespace deltad::cuda
