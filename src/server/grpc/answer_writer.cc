#include "server/grpc/answer_writer.h"

#include <string_view>

#include "server/grpc/proto_text.h"

namespace deltad {
namespace {

template <typename Out>  // v1::Choice, v1::ChoiceDelta
void write_piece(const Piece& piece, bool ids, Out* out) {
  out->set_text(valid_utf8(piece.text));
  if (ids) out->mutable_token_ids()->Add(piece.ids.begin(), piece.ids.end());
  for (const TokenText& token : piece.tokens) {
    v1::TokenLogprob* entry = out->add_logprobs();
    entry->set_token(valid_utf8(token.text));
    if (token.logprob) entry->set_logprob(*token.logprob);
    entry->set_bytes(token.bytes);
    entry->set_text_offset(static_cast<int64_t>(token.offset));
    for (const TopToken& other : token.top) {
      v1::TopLogprob* top = entry->add_top_logprobs();
      top->set_token(valid_utf8(other.text));
      top->set_logprob(other.logprob);
      top->set_bytes(other.bytes);
    }
  }
}

}  // namespace

v1::FinishReason finish_reason_proto(const char* reason) {
  const std::string_view name = reason == nullptr ? "" : reason;
  if (name == "stop") return v1::FINISH_REASON_STOP;
  if (name == "length") return v1::FINISH_REASON_LENGTH;
  return v1::FINISH_REASON_UNSPECIFIED;
}

void write_usage(const Usage& usage, v1::Usage* out) {
  out->set_prompt_tokens(usage.prompt_tokens);
  out->set_completion_tokens(usage.completion_tokens);
  out->set_cached_tokens(usage.cached_tokens);
}

void write_delta(int32_t index, const Piece& piece, bool ids, v1::ChoiceDelta* out) {
  out->set_index(index);
  write_piece(piece, ids, out);
}

void write_choice(int32_t index, const WholeChoice& choice, bool ids, v1::Choice* out) {
  out->set_index(index);
  write_piece(choice.piece, ids, out);
  out->set_finish_reason(finish_reason_proto(choice.finish_reason));
  if (ids && choice.prompt_ids != nullptr)
    out->mutable_prompt_token_ids()->Add(choice.prompt_ids->begin(), choice.prompt_ids->end());
}

}  // namespace deltad
