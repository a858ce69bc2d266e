// From Protobuf's requests to the structs that HTTP's are read into. Each parameter goes through
// the table that reads HTTP's, so both protocols have the same ranges, defaults and words for what
// is wrong. Errors name the parameter as HTTP does; field_path() (errors.h) makes it the field's
// path. Any thread.
#pragma once

#include "deltad/v1/inference.pb.h"
#include "server/generation/requests.h"
#include "server/generation/tokenization.h"

namespace deltad {

ApiError read_request(const v1::GenerateRequest& in, CompletionRequest* out);
ApiError read_request(const v1::ChatRequest& in, ChatRequest* out);
ApiError read_request(const v1::TokenizeRequest& in, TokenizeRequest* out);

}  // namespace deltad
