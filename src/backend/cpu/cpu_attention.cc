// CpuOps: rope_append and attention. Both cut the step into pieces that workers take as they come:
// results do not depend on who takes which, so the cutting may follow the load alone.
#include <algorithm>
#include <vector>

#include "backend/cpu/cpu_ops.h"
#include "base/check.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/kv_layout.h"
#include "kernels/cpu/rope.h"

namespace deltad {
namespace {

// Below this many elements of q, k and v the caller rotates alone: a fork costs more.
constexpr int64_t kForkElements = 4096;
// A tile with more than its worker's share of all segments, divided by this, is cut at segments, so
// that one long context keeps all workers busy.
constexpr int64_t kPiecesPerWorker = 4;

int32_t ceil_div(int32_t a, int32_t b) { return (a + b - 1) / b; }

// A kv head's keys in block 0 of a layer; kv.block_bytes apart from block to block.
uint16_t* head_part(const KvView& kv, const cpu::KvLayout& layout, int32_t layer, int32_t kv_head) {
  auto* block = static_cast<char*>(kv.data) + int64_t{layer} * kv.blocks * kv.block_bytes;
  return reinterpret_cast<uint16_t*>(block) + kv_head * layout.head_size;
}

void check_arguments(const AttentionShape& shape, TensorView qkv, const KvView& kv) {
  CHECK(shape.head_dim >= 2 && shape.head_dim <= cpu::kMaxHeadDim && shape.head_dim % 2 == 0,
        "head_dim is even and at most 256");
  CHECK(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0,
        "every kv head serves as many query heads");
  CHECK(kv.block_tokens == cpu::kKvTokens, "a KV block holds 16 positions");
  CHECK(qkv.dtype == DType::kF32, "qkv is fp32");
}

}  // namespace

// Kept from step to step, so that nothing is allocated once the largest step has been seen.
struct CpuOps::AttentionScratch {
  // Positions of one span that lie in one KV block.
  struct RopePiece {
    const SequenceSpan* span;
    int32_t row, end_row;
  };
  // Up to kAttentionRows of a span's (row, query head of the kv head's group) pairs: pair i is row
  // i / group, query head i % group.
  struct Tile {
    const SequenceSpan* span;
    int32_t kv_head;
    int32_t first_pair, pairs;
    int32_t segments;       // of its longest row
    int64_t first_partial;  // of a cut tile: its first segment's place in `partials`
  };
  struct Piece {
    Tile tile;
    int32_t segment;  // −1: all, in order
  };
  struct Worker {
    cpu::AttentionScratch kernel;
    float sum[cpu::kAttentionRows * cpu::kMaxPartial];
    float next[cpu::kAttentionRows * cpu::kMaxPartial];
  };

  explicit AttentionScratch(int workers) : per_worker(static_cast<size_t>(workers)) {}

  std::vector<Worker> per_worker;
  std::vector<RopePiece> rope_pieces;
  std::vector<Piece> pieces;
  std::vector<Tile> cut_tiles;
  std::vector<float> partials;  // kAttentionRows partial results a segment of a cut tile

  // Cuts the step; returns how many segments need a place in partials.
  int64_t plan(std::span<const SequenceSpan> spans, const AttentionShape& shape, int workers);
};

int64_t CpuOps::AttentionScratch::plan(std::span<const SequenceSpan> spans,
                                       const AttentionShape& shape, int workers) {
  const int32_t group = shape.heads / shape.kv_heads;
  pieces.clear();
  cut_tiles.clear();
  int64_t segments = 0;
  for (const SequenceSpan& span : spans) {
    const int32_t pairs = (span.end_row - span.first_row) * group;
    // Later tiles first: they see the longest context, and small pieces fill up the end.
    for (int32_t tile = ceil_div(pairs, cpu::kAttentionRows) - 1; tile >= 0; --tile) {
      const int32_t first = tile * cpu::kAttentionRows;
      const int32_t count = std::min(cpu::kAttentionRows, pairs - first);
      const int32_t length = span.first_position + (first + count - 1) / group + 1;
      const int32_t of_tile = ceil_div(length, cpu::kSegment);
      for (int32_t kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
        pieces.push_back({{&span, kv_head, first, count, of_tile, 0}, -1});
        segments += of_tile;
      }
    }
  }
  if (workers == 1) return 0;
  const int64_t limit = std::max<int64_t>(1, segments / (kPiecesPerWorker * workers));
  int64_t partial = 0;
  const size_t tiles = pieces.size();
  for (size_t i = 0; i < tiles; ++i) {
    if (pieces[i].tile.segments <= limit) continue;
    pieces[i].tile.first_partial = partial;
    const Tile tile = pieces[i].tile;
    cut_tiles.push_back(tile);
    partial += tile.segments;
    pieces[i].segment = 0;
    for (int32_t s = 1; s < tile.segments; ++s) pieces.push_back({tile, s});
  }
  return partial;
}

int64_t CpuOps::kv_block_bytes(const AttentionShape& shape, int32_t block_tokens) const {
  CHECK(block_tokens == cpu::kKvTokens, "a KV block holds 16 positions");
  const cpu::KvLayout layout(shape.head_dim);
  return shape.kv_heads * layout.head_size * static_cast<int64_t>(sizeof(uint16_t));
}

// Work is shared out by (KV block, kv head), so no two workers write the same part of a block:
// where a sequence's generated rows follow its prompt's within a block, both are one piece.
void CpuOps::rope_append(TensorView qkv, const AttentionShape& shape, TensorView cos_sin,
                         const KvView& kv, int32_t layer, std::span<const SequenceSpan> spans) {
  check_arguments(shape, qkv, kv);
  CHECK(cos_sin.dtype == DType::kF32, "cos_sin is fp32");
  if (!attention_scratch_) attention_scratch_ = std::make_shared<AttentionScratch>(team_.size());
  auto& pieces = attention_scratch_->rope_pieces;
  pieces.clear();
  int64_t rows = 0;
  for (const SequenceSpan& span : spans) {
    for (int32_t row = span.first_row; row < span.end_row;) {
      const int32_t position = span.first_position + row - span.first_row;
      const int32_t end = std::min(span.end_row, row + cpu::kKvTokens - position % cpu::kKvTokens);
      bool goes_on = false;
      if (row == span.first_row && position % cpu::kKvTokens != 0 && !pieces.empty()) {
        const SequenceSpan& last = *pieces.back().span;
        goes_on = last.first_position + row - last.first_row == position &&
                  last.blocks[position / cpu::kKvTokens] == span.blocks[position / cpu::kKvTokens];
      }
      if (goes_on) {
        pieces.back().end_row = end;
      } else {
        pieces.push_back({&span, row, end});
      }
      row = end;
    }
    rows += span.end_row - span.first_row;
  }

  const cpu::RopeKernels& kernels = cpu::rope_kernels(isa_);
  const cpu::KvLayout layout(shape.head_dim);
  const int32_t group = shape.heads / shape.kv_heads;
  const bool fork = rows * (shape.heads + 2 * shape.kv_heads) * shape.head_dim > kForkElements;
  const auto n = static_cast<int64_t>(pieces.size()) * shape.kv_heads;
  team_.take_turns(n, fork, [&](int, int64_t i) {
    const auto& piece = pieces[static_cast<size_t>(i / shape.kv_heads)];
    const auto kv_head = static_cast<int32_t>(i % shape.kv_heads);
    const SequenceSpan& span = *piece.span;
    uint16_t* part = head_part(kv, layout, layer, kv_head);
    const int64_t block =
        span.blocks[(span.first_position + piece.row - span.first_row) / cpu::kKvTokens];
    part += block * kv.block_bytes / static_cast<int64_t>(sizeof(uint16_t));
    // Each position touches every line of the keys: fetch them side by side.
    for (int64_t at = 0; at < layout.value_offset; at += 32) __builtin_prefetch(part + at, 1);
    for (int32_t row = piece.row; row < piece.end_row; ++row) {
      const int32_t position = span.first_position + row - span.first_row;
      const float* angles = cos_sin.row<float>(position);
      float* q = qkv.row<float>(row) + shape.q_offset + kv_head * group * shape.head_dim;
      float* k = qkv.row<float>(row) + shape.k_offset + kv_head * shape.head_dim;
      const float* v = qkv.row<float>(row) + shape.v_offset + kv_head * shape.head_dim;
      for (int32_t h = 0; h < group; ++h) {
        kernels.rotate(q + h * shape.head_dim, angles, shape.head_dim);
      }
      kernels.rotate(k, angles, shape.head_dim);
      kernels.append(part, position % cpu::kKvTokens, k, v, shape.head_dim);
    }
  });
}

void CpuOps::attention(TensorView out, TensorView qkv, const AttentionShape& shape,
                       const KvView& kv, int32_t layer, std::span<const SequenceSpan> spans) {
  check_arguments(shape, qkv, kv);
  CHECK(out.dtype == activation_type(), "attention writes an activation");
  if (!attention_scratch_) attention_scratch_ = std::make_shared<AttentionScratch>(team_.size());
  AttentionScratch& scratch = *attention_scratch_;
  const cpu::AttentionKernels& kernels = cpu::attention_kernels(isa_);
  const cpu::KvLayout layout(shape.head_dim);
  const int32_t group = shape.heads / shape.kv_heads;
  const int64_t stride = layout.padded_dim + cpu::kPartialTail;
  const int64_t segment_stride = cpu::kAttentionRows * stride;
  const auto element = static_cast<int64_t>(dtype_size(out.dtype));

  const int64_t partials = scratch.plan(spans, shape, team_.size());
  if (const auto needed = static_cast<size_t>(partials * segment_stride);
      scratch.partials.size() < needed) {
    scratch.partials.resize(needed);
  }

  const auto row_of = [&](const AttentionScratch::Tile& tile, int32_t r) {
    return tile.span->first_row + (tile.first_pair + r) / group;
  };
  const auto head_of = [&](const AttentionScratch::Tile& tile, int32_t r) {
    return tile.kv_head * group + (tile.first_pair + r) % group;
  };
  const auto length_of = [&](const AttentionScratch::Tile& tile, int32_t r) {
    return tile.span->first_position + (tile.first_pair + r) / group + 1;
  };
  // Adds the partial results of a segment to the rows that reach it.
  const auto combine = [&](const AttentionScratch::Tile& tile, int32_t segment, float* sum,
                           const float* next) {
    for (int32_t r = 0; r < tile.pairs; ++r) {
      if (length_of(tile, r) <= segment * cpu::kSegment) continue;
      kernels.combine(sum + r * stride, next + r * stride, layout.padded_dim);
    }
  };
  const auto finish = [&](const AttentionScratch::Tile& tile, const float* sum) {
    for (int32_t r = 0; r < tile.pairs; ++r) {
      const int64_t at = row_of(tile, r) * out.row_stride + head_of(tile, r) * shape.head_dim;
      kernels.finish(out.as<char>() + at * element, sum + r * stride, shape.head_dim,
                     layout.padded_dim);
    }
  };

  team_.take_turns(static_cast<int64_t>(scratch.pieces.size()), true, [&](int worker, int64_t i) {
    const auto& [tile, only_segment] = scratch.pieces[static_cast<size_t>(i)];
    AttentionScratch::Worker& own = scratch.per_worker[static_cast<size_t>(worker)];
    cpu::AttentionTile work;
    work.cache = head_part(kv, layout, layer, tile.kv_head);
    work.block_stride = kv.block_bytes / static_cast<int64_t>(sizeof(uint16_t));
    work.blocks = tile.span->blocks;
    work.head_dim = layout.head_dim;
    work.padded_dim = layout.padded_dim;
    work.scale = shape.scale * 1.44269504088896f;
    work.rows = tile.pairs;
    for (int32_t r = 0; r < tile.pairs; ++r) {
      work.query[r] =
          qkv.row<float>(row_of(tile, r)) + shape.q_offset + head_of(tile, r) * shape.head_dim;
      work.length[r] = length_of(tile, r);
    }
    const auto blocks_of = [](const AttentionScratch::Tile& t) {
      return ceil_div(t.span->first_position + t.span->end_row - t.span->first_row, cpu::kKvTokens);
    };
    work.end_block = only_segment < 0 ? blocks_of(tile) : (only_segment + 1) * cpu::kSegmentBlocks;
    // Pieces are handed out in turn, so this worker's next is about a team further on.
    const size_t ahead = std::min(static_cast<size_t>(i + team_.size()), scratch.pieces.size() - 1);
    const auto& [next, next_segment] = scratch.pieces[ahead];
    const int32_t next_block = std::max(next_segment, 0) * cpu::kSegmentBlocks;
    work.next_cache = head_part(kv, layout, layer, next.kv_head);
    work.next_blocks = next.span->blocks + next_block;
    work.next_block_count = blocks_of(next) - next_block;
    kernels.prepare(work, own.kernel);
    if (only_segment >= 0) {
      kernels.segment(
          work, own.kernel, only_segment,
          scratch.partials.data() + (tile.first_partial + only_segment) * segment_stride);
      return;
    }
    kernels.segment(work, own.kernel, 0, own.sum);
    for (int32_t s = 1; s < tile.segments; ++s) {
      kernels.segment(work, own.kernel, s, own.next);
      combine(tile, s, own.sum, own.next);
    }
    finish(tile, own.sum);
  });

  team_.take_turns(static_cast<int64_t>(scratch.cut_tiles.size()), scratch.cut_tiles.size() > 8,
                   [&](int, int64_t i) {
                     const AttentionScratch::Tile& tile = scratch.cut_tiles[static_cast<size_t>(i)];
                     float* sum = scratch.partials.data() + tile.first_partial * segment_stride;
                     for (int32_t s = 1; s < tile.segments; ++s) {
                       combine(tile, s, sum, sum + s * segment_stride);
                     }
                     finish(tile, sum);
                   });
}

}  // namespace deltad
