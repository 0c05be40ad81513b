#include "fabric/transports/shm/shm.hpp"

#include <cerrno>

#include <fmt/format.h>
#include <unistd.h>

#include "fabric/limits.hpp"
#include "fabric/transports/shm/memory/cross_memory.hpp"
#include "fabric/transports/shm/port.hpp"
#include "fabric/transports/shm/sleep_barrier.hpp"

namespace amalgam::detail {
namespace {

/// Whether the kernel allows this process cross-memory attach at all: on itself it always may,
/// unless the system calls are blocked.
status probe_cross_memory() noexcept {
    const shm_probe self{0x5eed, 0};
    return try_cross_memory(::getpid(), reinterpret_cast<std::uint64_t>(&self), self.token);
}

class shm_transport final : public transport {
public:
    shm_transport() noexcept : cross_memory_(probe_cross_memory()) {}

    std::string_view name() const noexcept override { return "shm"; }

    transport_info describe() const override {
        transport_info info;
        info.name = "shm";
        info.usable = true;
        info.summary =
            "shared memory between processes of one user on one host, and of others if allowed";
        info.details.push_back(
            cross_memory_.ok()
                ? std::string("rma: cross-memory attach")
                : fmt::format(
                      "rma: through the ring, as the kernel denies cross-memory attach ({})",
                      to_string(cross_memory_)));
        info.details.push_back("allocated blocks: mapped by peers, which copy directly");
        info.details.push_back(
            join_sleep_barriers()
                ? "wake-up: the sleeping side pays for the memory barrier (membarrier)"
                : "wake-up: every message pays for a memory barrier, as membarrier(2) is "
                  "unavailable");
        info.details.push_back(
            fmt::format("rings: {} KiB each way", limits::shm_ring_bytes / 1024));
        info.example = "shm://server";
        return info;
    }

    result<std::unique_ptr<port>> open(const uri& where,
                                       const port_options& options) const override {
        shm_port_settings settings;
        if (!cross_memory_.ok()) {
            settings.cross_memory = false;
            settings.why_not =
                fmt::format("the kernel denies cross-memory attach ({})", to_string(cross_memory_));
        }
        for (const uri_option& option : where.options) {
            if (option.key == "rma" && (option.value == "ring" || option.value == "blocks")) {
                settings.cross_memory = false;
                settings.shares_blocks = option.value == "blocks";
                settings.why_not = fmt::format("the URI says rma={}", option.value);
            } else if (option.key == "listen" && option.value == "no") {
                settings.listens = false;
            } else if (option.key == "users") {
                auto users = parse_shm_users(option.value);
                if (!users)
                    return {
                        errc::invalid,
                        fmt::format("uri \"{}\": users is \"{}\", but must be any, or users' "
                                    "numbers with commas; example: shm://server?users=1000,1001",
                                    to_string(where), option.value)};
                settings.users = std::move(*users);
            } else if (!(option.key == "rma" && option.value == "auto") &&
                       !(option.key == "listen" && option.value == "yes")) {
                return {errc::invalid,
                        fmt::format(
                            "uri \"{}\": unknown option \"{}={}\", expected rma=auto, rma=blocks, "
                            "rma=ring, listen=yes, listen=no or users; example: "
                            "shm://server?rma=ring",
                            to_string(where), option.key, option.value)};
            }
        }
        if (!settings.listens && !where.name.empty())
            return {errc::invalid, fmt::format("uri \"{}\": a port that does not listen must not "
                                               "have a name; example: shm://?listen=no",
                                               to_string(where))};
        return shm_port::open(where.name, settings, options);
    }

private:
    const status cross_memory_;
};

}  // namespace

std::unique_ptr<transport> make_shm_transport() {
    return std::make_unique<shm_transport>();
}

}  // namespace amalgam::detail
