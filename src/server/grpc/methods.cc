#include "server/grpc/methods.h"

#include <google/protobuf/descriptor.h>

namespace deltad {

std::optional<Need> need_of(const google::protobuf::MethodDescriptor& method) {
  const KnownMethod* known = find_method(method.service()->name() + "/" + method.name());
  return known != nullptr ? std::optional(known->need) : std::nullopt;
}

}  // namespace deltad
