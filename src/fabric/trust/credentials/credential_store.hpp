#pragma once

#include <mutex>
#include <string>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/detail/file_stamp.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/core/result.hpp>

#include "fabric/trust/credentials/loaded_credentials.hpp"

namespace amalgam::detail {

/// Credentials, and where they are read again from.
///
/// Threads: all members may run concurrently.
class credential_store {
public:
    using steady = std::chrono::steady_clock;
    using opened = result<std::unique_ptr<credential_store>>;

    /// `optional_list`: parts.revoked may be absent, until it has been there once.
    static opened of_files(credential_parts paths, bool optional_list);
    static opened of_text(const credential_parts& pem);

    /// Never null. Looks at the files if it has not within limits::credentials_interval.
    std::shared_ptr<const loaded_credentials> current(steady::time_point now = steady::now());
    /// What is in force, without looking.
    std::shared_ptr<const loaded_credentials> in_force() const;
    result<void> reload();

private:
    credential_store() = default;
    credential_parts paths_of_today() const;
    reread_files::stamps stamps() const;
    result<void> read_again();  // Under lock_.

    mutable std::mutex lock_;
    credential_parts paths_;
    bool from_text_ = false;      // There is nothing to read again.
    bool optional_list_ = false;  // Not seen so far.
    reread_files files_;
    steady::time_point looked_{};
    std::shared_ptr<const loaded_credentials> in_force_;
};

}  // namespace amalgam::detail
