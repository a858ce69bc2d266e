// The options of subcommands that speak TLS to a server; named as curl's. Main thread.
#pragma once

#include "client/tls.h"
#include "manual/command.h"

namespace deltad {

// --cacert, --cert, --key and --insecure.
void add_tls_options(Command* command, client::TlsOptions* tls);

}  // namespace deltad
