#pragma once

#include <string>
#include <vector>

#include <amalgam/fabric/identity.hpp>

#include "fabric/trust/keys/new_file.hpp"

namespace amalgam::detail {

// What key_folder.hpp does with folders that trust keys by their fingerprints, in trusted.keys. All
// throw amalgam::error.

bool has_trusted_keys(const std::string& folder);
/// Credentials have one kind of trust. Failure: throws error{in_use} if the folder, with "/" behind
/// it, has the other one.
void refuse_beside_trusted_keys(const std::string& in);
void refuse_beside_authorities(const std::string& in);

/// The file in the folder, which has "/" behind it, with these keys, too.
/// Failure: error{invalid} for a file that cannot be read, or has no room for more.
void add_trusted_keys(file_changes& to, const std::string& in,
                      const std::vector<key_fingerprint>& keys);
/// The folder `in` trusts the key of that fingerprint, or of the certificate in that file or
/// folder, from then on; or no longer. Returns one line.
std::string trust_key(const std::string& in, const std::string& whose);
std::string no_longer_trust_key(const std::string& in, const std::string& whose);

}  // namespace amalgam::detail
