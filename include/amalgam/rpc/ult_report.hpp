#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <amalgam/rpc/codec.hpp>
#include <amalgam/rpc/codec_containers.hpp>
#include <amalgam/rpc/codec_std.hpp>
#include <amalgam/rpc/peer.hpp>
#include <amalgam/tasks/ult_state.hpp>

namespace amalgam {

class engine;

/// A ULT of a process, as told to others.
struct told_ult {
    std::uint64_t id = 0;                ///< As waiting_unit::id.
    std::string name{};                  ///< May be empty.
    ult_state state = ult_state::ready;  ///< What it is doing.
    std::string waits_for{};             ///< As ult_info::waits_for; empty: it does not wait.
    std::chrono::nanoseconds waited{0};  ///< As ult_info::waited.
    std::uint64_t unit = 0;  ///< The ULT that holds what it waits for, or is joined; 0: unknown.
    std::string stream{};    ///< As ult_info::stream.
    std::vector<std::string> trace{};  ///< Innermost call first, as list_ults(true) has it.

    template <typename Archive>
    void serialize(Archive& a) {
        a(id, name, state, waits_for, waited, unit, stream, trace);
    }
};

/// All ULTs of a process at one time: what each waits for, and its stack.
struct ult_report {
    std::int32_t process = 0;      ///< Its id on its host.
    std::string host{};            ///< The host's name.
    std::vector<told_ult> ults{};  ///< At most 1,024; those that wait longest first.
    std::uint64_t left_out = 0;    ///< More than that, or than 512 KiB of text.

    template <typename Archive>
    void serialize(Archive& a) {
        a(process, host, ults, left_out);
    }
};

/// Those of this process. Threads, failure and cost: as list_ults(true).
ult_report read_ults();

/// Those of a peer's process, if it has called offer_metrics() and lets us read its numbers; parks
/// the ULT or thread for `timeout` at most.
/// Failure: as read_metrics() of a peer.
ult_report read_ults(engine& here, const peer& there,
                     std::chrono::milliseconds timeout = std::chrono::seconds(5));

}  // namespace amalgam
