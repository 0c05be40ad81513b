#pragma once

#include <memory>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/result.hpp>

#include "fabric/trust/credentials/loaded_credentials.hpp"

namespace amalgam::detail {

/// Credentials, and where they are read again from: by a thread in the background, from the first
/// current() on, so that who makes progress never waits for a file system.
///
/// Threads: all members may run concurrently. No lock that current() and in_force() take is held
///          while a file is read or parsed.
class credential_store {
public:
    using steady = std::chrono::steady_clock;
    using opened = result<std::unique_ptr<credential_store>>;
    /// After this the file system is said not to answer.
    static constexpr std::chrono::seconds longest_look{10};

    /// `optional_list`: parts.revoked may be absent, until it has been there once. Relative paths
    /// are made absolute. Failure: as credentials; `not_found` if the current folder is gone.
    static opened of_files(credential_parts paths, bool optional_list);
    static opened of_text(const credential_parts& pem);
    credential_store(const credential_store&) = delete;
    /// Waits for no file system.
    ~credential_store();

    /// What is in force, never null. The first call of a process starts the thread, and looks at
    /// the files itself if nobody has within limits::credentials_interval; so does each further one
    /// where there can be no thread. Tells the log of a file system that does not answer.
    std::shared_ptr<const loaded_credentials> current(steady::time_point now = steady::now());
    /// What is in force, and nothing else.
    std::shared_ptr<const loaded_credentials> in_force() const;

    /// Reads the files now.
    result<void> reload(wall_time now = std::chrono::system_clock::now());
    /// What the thread does: looks at the files, and reads them if one has changed. The next
    /// current() tells the log what comes of it.
    void look();

private:
    class shared;

    explicit credential_store(std::shared_ptr<shared> all) noexcept;
    explicit credential_store(std::shared_ptr<const loaded_credentials> from_text) noexcept;

    const std::shared_ptr<shared> shared_;  // Null: there is nothing to read again.
    const std::shared_ptr<const loaded_credentials> from_text_;
};

}  // namespace amalgam::detail
