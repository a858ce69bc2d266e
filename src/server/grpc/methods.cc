#include "server/grpc/methods.h"

#include <google/protobuf/descriptor.h>

#include <string>

namespace deltad {

std::optional<Need> need_of(const google::protobuf::MethodDescriptor& method) {
  const std::string name = method.service()->name() + "/" + method.name();
  for (const KnownMethod& known : kMethods)
    if (known.name == name) return known.need;
  return std::nullopt;
}

}  // namespace deltad
