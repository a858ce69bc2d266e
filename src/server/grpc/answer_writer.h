// From a generation's answer to Protobuf's messages. Pure.
#pragma once

#include "deltad/v1/inference.pb.h"
#include "server/generation/generation_sink.h"

namespace deltad {

v1::FinishReason finish_reason_proto(const char* reason);
void write_usage(const Usage& usage, v1::Usage* out);
// ids: whether they were asked for.
void write_delta(int32_t index, const Piece& piece, bool ids, v1::ChoiceDelta* out);
void write_choice(int32_t index, const WholeChoice& choice, bool ids, v1::Choice* out);

}  // namespace deltad
