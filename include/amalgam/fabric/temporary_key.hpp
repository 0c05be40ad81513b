#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/detail/memory.hpp>
#include <amalgam/fabric/credentials.hpp>
#include <amalgam/fabric/identity.hpp>

namespace amalgam {

/// A private key that is made now, stays in this process's memory, and ends with it: for processes
/// that come and go together. Each makes one and tells the others its fingerprint, over a way on
/// which nobody else can write. Then each trusts exactly those keys, under whatever host. No
/// private key travels, and there is no authority that could certify others.
///
/// Threads: const members may run concurrently.
/// Failure: the constructor throws error{unsupported} where OpenSSL refuses, and std::bad_alloc.
/// Cost:    a millisecond.
class temporary_key {
public:
    /// `name` is what peers see, identity::name. Characters that certificates cannot have become
    /// "_", and what is longer than 64 is cut.
    explicit temporary_key(std::string_view name);
    temporary_key(temporary_key&&) noexcept;
    temporary_key& operator=(temporary_key&&) noexcept;
    ~temporary_key();

    /// What the others need to trust this key.
    const key_fingerprint& fingerprint() const noexcept;
    /// For port_options::trust: proves this key, and trusts `keys`.
    /// Failure: throws error{invalid} if there are none.
    std::shared_ptr<const credentials> trusting(std::vector<key_fingerprint> keys) const;

private:
    struct parts;
    std::unique_ptr<parts> parts_;
};

}  // namespace amalgam
