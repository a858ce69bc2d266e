// PlainTransformer: a whole small model in fp32 as plain matrices, with the gradient of the KL
// divergence from given logits by its block matrices: what distillation needs and serving does not.
// The arithmetic of model/transformer.cc in order, each step beside its derivative. One thread
// calls; products of matrices use several.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "calibrate/layer_walk.h"
#include "merge/matrix.h"
#include "model/config.h"

namespace deltad {

// The weights of a model, by Hugging Face name: norms [1, n]. The head is lm_head.weight, or the
// embeddings where there is none.
using PlainWeights = std::map<std::string, Matrix>;

class PlainTransformer {
 public:
  // weights outlive it, and may change between calls.
  PlainTransformer(const ModelConfig& config, const PlainWeights& weights, int threads)
      : config_(config), weights_(weights), threads_(threads) {}

  // What enters the head, [tokens, H], of sequences one after the other.
  Matrix forward(const std::vector<TokenSequence>& sequences);
  // x · headᵀ, [tokens, vocab]
  Matrix logits(const Matrix& x) const;
  // The gradient by x from that by the logits.
  Matrix logits_back(const Matrix& gradient) const;
  // After forward(): visits each block matrix with what enters it, x [tokens, d_in], and the
  // gradient by its output, [tokens, d_out], from that by forward()'s result. The gradient by the
  // matrix is gradientᵀ·x. From the last matrix to the first.
  using Visit = std::function<void(const std::string& weight, const Matrix& x, const Matrix& grad)>;
  void backward(Matrix gradient, const Visit& visit) const;

 private:
  struct Norm {
    Matrix in, out;
    std::vector<float> inverse;  // 1/rms of a row
  };
  struct Layer {
    Norm attention_norm, mlp_norm;
    Matrix q, k, v;  // q and k rotated
    Matrix attended;
    // Of each sequence and head: weights of the keys, [n, n], zero after the diagonal.
    std::vector<Matrix> attention;
    Matrix gate, up, gated;
  };
  struct Span {
    int64_t first, count;
  };

  // a · bᵀ or a · b, the rows of a divided among the threads.
  Matrix times_transposed(const Matrix& a, const Matrix& b) const;
  Matrix times(const Matrix& a, const Matrix& b) const;
  const Matrix& head() const;
  const Matrix& weight(int64_t layer, const char* name) const;
  Norm normed(const Matrix& x, const Matrix& scale) const;
  Matrix normed_back(const Norm& norm, const Matrix& scale, const Matrix& gradient) const;
  void rotate(Matrix* x, double direction) const;
  void attend(Layer* layer) const;
  void attend_back(const Layer& layer, const Matrix& gradient, Matrix* q, Matrix* k,
                   Matrix* v) const;

  const ModelConfig config_;
  const PlainWeights& weights_;
  const int threads_;
  std::vector<Span> spans_;
  std::vector<Layer> layers_;
  Norm final_norm_;
};

// Mean KL(target ‖ logits) over the rows, nats; gradient: null, or gets that by the logits.
// Columns beyond those of either do not count.
double kl_divergence(const Matrix& target, const Matrix& logits, Matrix* gradient);

}  // namespace deltad
