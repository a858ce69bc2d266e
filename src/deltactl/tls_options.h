// The options of subcommands that speak TLS to a server; named as curl's. Main thread.
#pragma once

#include <CLI/CLI.hpp>

#include "client/tls.h"

namespace deltad {

// --cacert, --cert, --key and --insecure.
void add_tls_options(CLI::App* command, client::TlsOptions* tls);

}  // namespace deltad
