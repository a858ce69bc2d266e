// Between the admin API's JSON and the messages of proto/deltad/v1/admin.proto. Pure.
#pragma once

#include <google/protobuf/message.h>

#include "deltad/v1/admin.pb.h"
#include "server/openai/errors.h"

namespace deltad {

// The body of a request.
Json body_json(const v1::AddVariantRequest& in);
Json body_json(const v1::ReplaceVariantRequest& in);
Json body_json(const v1::SetRateLimitRequest& in);
Json body_json(const v1::AddPoolAdapterRequest& in);
Json body_json(const v1::SetPoolBudgetRequest& in);

// Members of json that the message does not have are left out; null is a field that is not set.
ApiError fill_message(const Json& json, google::protobuf::Message* out);

}  // namespace deltad
