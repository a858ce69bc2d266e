#include "distill/plain_transformer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "delta/work_list.h"
#include "merge/svd.h"

namespace deltad {
namespace {

constexpr int64_t kRows = 32;  // of a product that one thread computes at a time
constexpr const char* kEmbeddings = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";
constexpr const char* kAttentionNorm = "input_layernorm.weight";
constexpr const char* kMlpNorm = "post_attention_layernorm.weight";

void add(const Matrix& more, Matrix* to) {
  std::transform(to->values.begin(), to->values.end(), more.values.begin(), to->values.begin(),
                 [](float a, float b) { return a + b; });
}

// a · b, b as it is or transposed.
Matrix product(const Matrix& a, const Matrix& b, As as_b, int threads) {
  const int64_t columns = as_b == As::kIs ? b.columns : b.rows;
  Matrix out(a.rows, columns);
  const Status status = run_work_list((a.rows + kRows - 1) / kRows, threads, [&](int64_t i) {
    const int64_t first = i * kRows, count = std::min(kRows, a.rows - first);
    Matrix part(count, a.columns);
    std::copy_n(a.row(first), part.values.size(), part.values.begin());
    const Matrix result = multiply(part, As::kIs, b, as_b);
    std::copy(result.values.begin(), result.values.end(), out.row(first));
    return Status();
  });
  CHECK(status.ok(), "products do not fail");
  return out;
}

}  // namespace

Matrix PlainTransformer::times_transposed(const Matrix& a, const Matrix& b) const {
  return product(a, b, As::kTransposed, threads_);
}

Matrix PlainTransformer::times(const Matrix& a, const Matrix& b) const {
  return product(a, b, As::kIs, threads_);
}

const Matrix& PlainTransformer::weight(int64_t layer, const char* name) const {
  return weights_.at("model.layers." + std::to_string(layer) + "." + name);
}

// y = w · x / rms(x)
PlainTransformer::Norm PlainTransformer::normed(const Matrix& x, const Matrix& scale) const {
  Norm norm{x, Matrix(x.rows, x.columns), {}};
  for (int64_t r = 0; r < x.rows; ++r) {
    double squares = 0;
    for (int64_t c = 0; c < x.columns; ++c) squares += static_cast<double>(x.at(r, c)) * x.at(r, c);
    const auto inverse = static_cast<float>(
        1 / std::sqrt(squares / static_cast<double>(x.columns) + config_.rms_eps));
    norm.inverse.push_back(inverse);
    for (int64_t c = 0; c < x.columns; ++c)
      norm.out.at(r, c) = scale.at(0, c) * x.at(r, c) * inverse;
  }
  return norm;
}

// dx = i·(w∘g) − x · i³/n · ⟨w∘g, x⟩, i = 1/rms
Matrix PlainTransformer::normed_back(const Norm& norm, const Matrix& scale,
                                     const Matrix& gradient) const {
  const Matrix& x = norm.in;
  Matrix out(x.rows, x.columns);
  for (int64_t r = 0; r < x.rows; ++r) {
    const float inverse = norm.inverse[static_cast<size_t>(r)];
    double along = 0;
    for (int64_t c = 0; c < x.columns; ++c)
      along += static_cast<double>(scale.at(0, c)) * gradient.at(r, c) * x.at(r, c);
    const auto back =
        static_cast<float>(along / static_cast<double>(x.columns)) * inverse * inverse * inverse;
    for (int64_t c = 0; c < x.columns; ++c)
      out.at(r, c) = inverse * scale.at(0, c) * gradient.at(r, c) - back * x.at(r, c);
  }
  return out;
}

// The pairs (i, i + head_dim/2) of each head by the angles of the row's position; direction −1
// turns back, which is also the derivative.
void PlainTransformer::rotate(Matrix* x, double direction) const {
  const int64_t half = config_.head_dim / 2;
  for (const Span& span : spans_)
    for (int64_t p = 0; p < span.count; ++p) {
      float* row = x->row(span.first + p);
      for (int64_t i = 0; i < half; ++i) {
        const double angle =
            static_cast<double>(p) *
            std::pow(config_.rope_theta, -static_cast<double>(i) / static_cast<double>(half));
        const auto cosine = static_cast<float>(std::cos(angle));
        const auto sine = static_cast<float>(direction * std::sin(angle));
        for (int64_t at = i; at < x->columns; at += config_.head_dim) {
          const float a = row[at], b = row[at + half];
          row[at] = a * cosine - b * sine;
          row[at + half] = b * cosine + a * sine;
        }
      }
    }
}

void PlainTransformer::attend(Layer* layer) const {
  const int64_t dim = config_.head_dim, group = config_.heads / config_.kv_heads;
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(dim)));
  layer->attended = Matrix(layer->q.rows, layer->q.columns);
  layer->attention.resize(spans_.size() * static_cast<size_t>(config_.heads));
  const auto count = static_cast<int64_t>(layer->attention.size());
  const Status status = run_work_list(count, threads_, [&](int64_t i) {
    const Span& span = spans_[static_cast<size_t>(i / config_.heads)];
    const int64_t q_at = i % config_.heads * dim, kv_at = i % config_.heads / group * dim;
    Matrix& p = layer->attention[static_cast<size_t>(i)];
    p = Matrix(span.count, span.count);
    for (int64_t t = 0; t < span.count; ++t) {
      const float* q = layer->q.row(span.first + t) + q_at;
      float top = -1e30f, sum = 0;
      for (int64_t s = 0; s <= t; ++s) {
        const float* k = layer->k.row(span.first + s) + kv_at;
        float score = 0;
        for (int64_t c = 0; c < dim; ++c) score += q[c] * k[c];
        p.at(t, s) = score * scale;
        top = std::max(top, p.at(t, s));
      }
      for (int64_t s = 0; s <= t; ++s) sum += p.at(t, s) = std::exp(p.at(t, s) - top);
      float* out = layer->attended.row(span.first + t) + q_at;
      for (int64_t s = 0; s <= t; ++s) {
        const float weight = p.at(t, s) /= sum;
        const float* v = layer->v.row(span.first + s) + kv_at;
        for (int64_t c = 0; c < dim; ++c) out[c] += weight * v[c];
      }
    }
    return Status();
  });
  CHECK(status.ok(), "attention does not fail");
}

// With p = softmax(scores): dscore = p∘(dp − ⟨p, dp⟩).
void PlainTransformer::attend_back(const Layer& layer, const Matrix& gradient, Matrix* q, Matrix* k,
                                   Matrix* v) const {
  const int64_t dim = config_.head_dim, group = config_.heads / config_.kv_heads;
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(dim)));
  *q = Matrix(layer.q.rows, layer.q.columns);
  *k = Matrix(layer.k.rows, layer.k.columns);
  *v = Matrix(layer.v.rows, layer.v.columns);
  // Query heads of one group add to the same keys and values: one thread has them all.
  const auto count = static_cast<int64_t>(spans_.size()) * config_.kv_heads;
  const Status status = run_work_list(count, threads_, [&](int64_t i) {
    const auto s_at = static_cast<size_t>(i / config_.kv_heads);
    const int64_t kv_head = i % config_.kv_heads, kv_at = kv_head * dim;
    const Span& span = spans_[s_at];
    std::vector<float> by_score(static_cast<size_t>(span.count));
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const Matrix& p =
          layer.attention[s_at * static_cast<size_t>(config_.heads) + static_cast<size_t>(head)];
      for (int64_t t = 0; t < span.count; ++t) {
        const float* g = gradient.row(span.first + t) + head * dim;
        float along = 0;
        for (int64_t s = 0; s <= t; ++s) {
          const float* value = layer.v.row(span.first + s) + kv_at;
          float* to = v->row(span.first + s) + kv_at;
          float by_weight = 0;
          for (int64_t c = 0; c < dim; ++c) {
            by_weight += g[c] * value[c];
            to[c] += p.at(t, s) * g[c];
          }
          by_score[static_cast<size_t>(s)] = by_weight;
          along += p.at(t, s) * by_weight;
        }
        const float* query = layer.q.row(span.first + t) + head * dim;
        float* by_query = q->row(span.first + t) + head * dim;
        for (int64_t s = 0; s <= t; ++s) {
          const float by = scale * p.at(t, s) * (by_score[static_cast<size_t>(s)] - along);
          const float* key = layer.k.row(span.first + s) + kv_at;
          float* by_key = k->row(span.first + s) + kv_at;
          for (int64_t c = 0; c < dim; ++c) {
            by_query[c] += by * key[c];
            by_key[c] += by * query[c];
          }
        }
      }
    }
    return Status();
  });
  CHECK(status.ok(), "attention does not fail");
}

Matrix PlainTransformer::forward(const std::vector<TokenSequence>& sequences) {
  spans_.clear();
  int64_t tokens = 0;
  for (const TokenSequence& sequence : sequences) {
    spans_.push_back({tokens, static_cast<int64_t>(sequence.size())});
    tokens += spans_.back().count;
  }
  Matrix residual(tokens, config_.hidden);
  const Matrix& embeddings = weights_.at(kEmbeddings);
  for (size_t s = 0; s < sequences.size(); ++s)
    for (size_t t = 0; t < sequences[s].size(); ++t)
      std::copy_n(embeddings.row(sequences[s][t]), config_.hidden,
                  residual.row(spans_[s].first + static_cast<int64_t>(t)));
  layers_.clear();
  for (int64_t l = 0; l < config_.layers; ++l) {
    Layer& layer = layers_.emplace_back();
    layer.attention_norm = normed(residual, weight(l, kAttentionNorm));
    const Matrix& x = layer.attention_norm.out;
    layer.q = times_transposed(x, weight(l, "self_attn.q_proj.weight"));
    layer.k = times_transposed(x, weight(l, "self_attn.k_proj.weight"));
    layer.v = times_transposed(x, weight(l, "self_attn.v_proj.weight"));
    rotate(&layer.q, 1);
    rotate(&layer.k, 1);
    attend(&layer);
    add(times_transposed(layer.attended, weight(l, "self_attn.o_proj.weight")), &residual);
    layer.mlp_norm = normed(residual, weight(l, kMlpNorm));
    layer.gate = times_transposed(layer.mlp_norm.out, weight(l, "mlp.gate_proj.weight"));
    layer.up = times_transposed(layer.mlp_norm.out, weight(l, "mlp.up_proj.weight"));
    layer.gated = layer.up;
    for (size_t i = 0; i < layer.gated.values.size(); ++i) {
      const float gate = layer.gate.values[i];
      layer.gated.values[i] *= gate / (1 + std::exp(-gate));
    }
    add(times_transposed(layer.gated, weight(l, "mlp.down_proj.weight")), &residual);
  }
  final_norm_ = normed(residual, weights_.at("model.norm.weight"));
  return final_norm_.out;
}

const Matrix& PlainTransformer::head() const {
  const auto own = weights_.find(kHead);
  return own != weights_.end() ? own->second : weights_.at(kEmbeddings);
}

Matrix PlainTransformer::logits(const Matrix& x) const { return times_transposed(x, head()); }

Matrix PlainTransformer::logits_back(const Matrix& gradient) const {
  return times(gradient, head());
}

void PlainTransformer::backward(Matrix gradient, const Visit& visit) const {
  gradient = normed_back(final_norm_, weights_.at("model.norm.weight"), gradient);
  for (int64_t l = config_.layers; l-- > 0;) {
    const Layer& layer = layers_[static_cast<size_t>(l)];
    // The gradient by what enters a matrix, from that by what leaves it.
    const auto through = [&](const char* name, const Matrix& x, const Matrix& by_output) {
      visit("model.layers." + std::to_string(l) + "." + name, x, by_output);
      return times(by_output, weight(l, name));
    };
    const Matrix by_gated = through("mlp.down_proj.weight", layer.gated, gradient);
    Matrix by_gate = by_gated, by_up = by_gated;
    for (size_t i = 0; i < by_gated.values.size(); ++i) {
      const float gate = layer.gate.values[i], sigmoid = 1 / (1 + std::exp(-gate));
      by_up.values[i] *= gate * sigmoid;
      by_gate.values[i] *= layer.up.values[i] * sigmoid * (1 + gate * (1 - sigmoid));
    }
    Matrix by_x = through("mlp.up_proj.weight", layer.mlp_norm.out, by_up);
    add(through("mlp.gate_proj.weight", layer.mlp_norm.out, by_gate), &by_x);
    add(normed_back(layer.mlp_norm, weight(l, kMlpNorm), by_x), &gradient);

    const Matrix by_attended = through("self_attn.o_proj.weight", layer.attended, gradient);
    Matrix by_q, by_k, by_v;
    attend_back(layer, by_attended, &by_q, &by_k, &by_v);
    rotate(&by_q, -1);
    rotate(&by_k, -1);
    const Matrix& x = layer.attention_norm.out;
    by_x = through("self_attn.v_proj.weight", x, by_v);
    add(through("self_attn.k_proj.weight", x, by_k), &by_x);
    add(through("self_attn.q_proj.weight", x, by_q), &by_x);
    add(normed_back(layer.attention_norm, weight(l, kAttentionNorm), by_x), &gradient);
  }
}

double kl_divergence(const Matrix& target, const Matrix& logits, Matrix* gradient) {
  const int64_t rows = target.rows, columns = std::min(target.columns, logits.columns);
  if (gradient != nullptr) *gradient = Matrix(rows, logits.columns);
  const auto normalizer = [&](const float* row) {
    const auto top = static_cast<double>(*std::max_element(row, row + columns));
    double sum = 0;
    for (int64_t c = 0; c < columns; ++c) sum += std::exp(static_cast<double>(row[c]) - top);
    return top + std::log(sum);
  };
  double total = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const float *p = target.row(r), *q = logits.row(r);
    const double p_sum = normalizer(p), q_sum = normalizer(q);
    for (int64_t c = 0; c < columns; ++c) {
      const double log_p = static_cast<double>(p[c]) - p_sum;
      const double log_q = static_cast<double>(q[c]) - q_sum;
      const double share = std::exp(log_p);
      total += share * (log_p - log_q);
      if (gradient != nullptr)
        gradient->at(r, c) =
            static_cast<float>((std::exp(log_q) - share) / static_cast<double>(rows));
    }
  }
  return total / static_cast<double>(std::max<int64_t>(1, rows));
}

}  // namespace deltad
