// The credentials of a gRPC listener: none, or TLS with the certificates that the store has when a
// connection is made, so that those that are read anew are used without a restart. Any thread.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "server/tls/certificate_store.h"

namespace deltad {

// store: null: no TLS; else it outlives what is returned.
std::shared_ptr<grpc::ServerCredentials> server_credentials(const CertificateStore* store);

}  // namespace deltad
