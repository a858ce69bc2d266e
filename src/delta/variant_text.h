// The text assets of a variant on disk: its own where its folder brings files, else the base's. Any
// thread.
#pragma once

#include <memory>
#include <string>

#include "text/text_assets.h"

namespace deltad {

// path: a variant file or folder. Returns `base` itself if the variant brings nothing. Errors name
// the file.
Result<std::shared_ptr<const TextAssets>> variant_text(
    const std::string& path, const std::shared_ptr<const TextAssets>& base);

// Of the content of the text files in the variant's folder, to tell whether they have changed; ""
// for a single file.
Result<std::string> variant_text_digest(const std::string& path);

}  // namespace deltad
