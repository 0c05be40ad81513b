#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <sys/types.h>

#include <amalgam/core/unique_fd.hpp>
#include <amalgam/fabric/one_sided.hpp>

#include "fabric/transports/shm/memory/cross_memory.hpp"
#include "fabric/transports/shm/memory/registrations.hpp"

namespace amalgam::detail {

/// How another port finds this one's registrations. Travels between ports of one host.
struct host_name {
    static constexpr std::size_t wire_bytes = 56;

    std::uint64_t pid = 0;
    std::uint64_t descriptor = 0;  ///< Of the registrations, in that process.
    std::uint64_t device = 0;      ///< device and inode tell whether it still is.
    std::uint64_t inode = 0;
    std::uint64_t probe = 0;  ///< Address of a word that equals `token`.
    std::uint64_t token = 0;  ///< Random: tells ports apart, also those of other hosts.
    std::uint64_t slot = 0;   ///< To whom it is told: its number among `admitted`.

    void encode(std::byte* to) const noexcept;
    static host_name decode(const std::byte* from) noexcept;
};

/// Another port of this host, as its name led to it.
struct host_peer {
    host_name name;
    unique_fd process;  ///< Readable when its process has ended.
    shm_registrations_view table;
    std::size_t slot = 0;  ///< Its number among those who are admitted, or ours with it.
    bool denied = false;   ///< The kernel has refused a copy since.

    pid_t pid() const noexcept { return static_cast<pid_t>(name.pid); }
    bool is_gone() const noexcept;
};

/// One-sided transfers between processes of one host, for carriers of any library: the kernel
/// copies between the two (cross-memory attach). The initiator checks the key in the registrations
/// that the target publishes, after it has marked in its own what it is about to touch; a region
/// that closes waits for the end of such a touch. So keys are checked as over shm://, between
/// processes whom the kernel lets read each other's memory anyway.
///
/// Threads: the port's thread.
class host_copies final : public one_sided_carrier {
public:
    /// Failure: `unsupported` with a sentence if the kernel denies such copies; `no_memory`.
    static result<std::unique_ptr<host_copies>> make(std::chrono::milliseconds silence_limit);

    void start_one_sided(one_sided_events&) noexcept override {}
    one_sided_facts one_sided_traits() const noexcept override;
    const_bytes one_sided_name() const noexcept override { return name_; }

    void show(const remote_key&, scatter segments) noexcept override;
    result<std::size_t> expose(packet_link& to, const_bytes name, const remote_key&, scatter,
                               std::size_t index,
                               std::span<std::byte, max_key_bytes> told) noexcept override;
    void hide(const remote_key&) noexcept override;
    void left(packet_link&) noexcept override;

    result<void*> open_key(packet_link&, const remote_key&, std::size_t, std::uint64_t,
                           const_bytes told) noexcept override;
    void close_key(void*) noexcept override;

    posted start(packet_link&, one_sided_transfer&) noexcept override;
    void let_go(one_sided_transfer&) noexcept override {}
    void end_one_sided() noexcept override {}

    /// For `amalgam info --explain`, after "puts and gets": what it does, and how often it could
    /// not.
    std::string explain() const;

private:
    friend class host_copies_test;
    class touch;

    host_copies(shm_registrations table, std::chrono::milliseconds silence_limit);
    result<std::unique_ptr<host_peer>> meet(const_bytes name) noexcept;
    result<std::unique_ptr<host_peer>> reach(const_bytes name) noexcept;
    status copy(host_peer&, one_sided_transfer&) noexcept;
    void wait_until_untouched(host_peer&, std::uint64_t region) noexcept;
    void forget_sleepers() noexcept;
    bool may_copy(const host_peer&, const one_sided_transfer&, shm_found_region&) const noexcept;

    const std::chrono::milliseconds silence_limit_;
    shm_registrations table_;
    const std::uint64_t token_;
    shm_own_probe probe_;
    std::vector<std::byte> name_;
    /// Those who may touch our regions, by the link they came with.
    std::unordered_map<packet_link*, std::unique_ptr<host_peer>> visitors_;
    /// Their links are gone, but they were writing then.
    std::vector<std::unique_ptr<host_peer>> sleepers_;
    std::vector<bool> slots_;  ///< Which numbers are given.
    std::size_t denied_ = 0;
    status denied_why_;
};

}  // namespace amalgam::detail
