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

/// A ULT or thread that has to do with a call. Ids are the same for all engines of a process.
struct waiting_unit {
    std::uint64_t id = 0;                ///< Unique in its process; never 0.
    std::int32_t thread = 0;             ///< Of a thread its number in the system; of a ULT 0.
    std::string name;                    ///< May be empty.
    ult_state state = ult_state::ready;  ///< Of a ULT: what it is doing.
    std::string waits_for;               ///< As ult_info::waits_for; empty: it does not wait.
    std::chrono::nanoseconds waited{0};  ///< As ult_info::waited; of a thread unknown.
    std::string stream;                  ///< As ult_info::stream.
    std::uint64_t call = 0;              ///< open_call::id of the call that it waits for; 0: none.
    std::uint64_t unit = 0;  ///< Holds the mutex that it waits for, or is joined by it; 0: unknown.
    std::uint64_t mutex = 0;    ///< Names ult_info::mutex, the same for all of a process; 0: none.
    std::uint64_t readers = 0;  ///< As ult_info::readers.

    template <typename Archive>
    void serialize(Archive& a) {
        a(id, thread, name, state, waits_for, waited, stream, call, unit, mutex, readers);
    }
};

/// What the peer of an open call said of it.
enum class peer_answer : std::uint8_t {
    not_asked,  ///< Calls to too many peers are open.
    told,       ///< Which of its handlers runs the call, if any.
    silent,     ///< Nothing, for as long as could be waited.
    refused,    ///< It answers, but has not called offer_metrics().
    gone        ///< The connection to it has ended.
};

/// A call of an engine that has not ended.
struct open_call {
    std::uint64_t id = 0;                         ///< 0: it waits for its next attempt.
    std::string procedure;                        ///< Its name.
    std::uint16_t provider = 0;                   ///< Id of the provider it is to; 0: none.
    std::string peer;                             ///< The peer's address.
    std::chrono::nanoseconds open{0};             ///< How long; 0: unknown.
    bool unsent = false;                          ///< The request waits for room at the port.
    std::uint64_t unit = 0;                       ///< Who waits for it; 0: nobody, or unknown.
    peer_answer answer = peer_answer::not_asked;  ///< What the peer says of it.
    std::uint64_t engine = 0;                     ///< If told: wait_report::engine of the peer,
    std::uint64_t handler = 0;                    ///< open_handler::id there, 0: none runs,
    std::vector<std::string> listens_at;          ///< and its own addresses, at most 8.

    template <typename Archive>
    void serialize(Archive& a) {
        a(id, procedure, provider, peer, open, unsent, unit, answer, engine, handler, listens_at);
    }
};

/// A call that an engine serves: its handler runs, or it will be answered later.
struct open_handler {
    std::uint64_t id = 0;        ///< As open_call::handler at the caller.
    std::string procedure;       ///< Its name.
    std::uint16_t provider = 0;  ///< Id of the provider that serves it; 0: none.
    std::string caller;          ///< The caller's address.
    bool one_way = false;        ///< The caller does not wait.
    std::uint64_t unit = 0;  ///< What runs it; 0: it has returned, and a responder is to answer.

    template <typename Archive>
    void serialize(Archive& a) {
        a(id, procedure, provider, caller, one_way, unit);
    }
};

/// What an engine waits for, and who waits for it, at one time. Each part is looked at in turn, so
/// a call or a wait may have ended by the time that another is looked at.
struct wait_report {
    std::uint64_t engine = 0;  ///< The same for each report of this engine, and of no other.
    std::string name;          ///< engine_options::name
    std::int32_t process = 0;  ///< Its id on its host.
    std::string host;          ///< The host's name.
    std::vector<std::string> addresses;  ///< At which it listens.
    std::vector<open_call> calls;        ///< At most 256; without those of the library that ask.
    std::vector<open_handler> handlers;  ///< At most 256; without those that answer these.
    std::vector<waiting_unit> units;     ///< At most 1,024.
    std::uint64_t left_out = 0;          ///< Calls and handlers beyond that.

    template <typename Archive>
    void serialize(Archive& a) {
        a(engine, name, process, host, addresses, calls, handlers, units, left_out);
    }
};

/// What an engine of this process waits for. Asks the peers of its open calls which of their
/// handlers run them, for as long as `asking`. Parks the ULT or thread.
/// Failure: throws error{closed} after stop(), error{invalid} where the caller must not wait.
/// Cost:    walks over the open calls on the engine's stream, and over the process's ULTs.
wait_report read_waits(engine& here, std::chrono::milliseconds asking = std::chrono::seconds(1));

/// The same of a peer that has called offer_metrics(); parks the ULT or thread for `timeout` at
/// most, of which the peer asks others for the half.
/// Failure: as read_metrics() of a peer.
wait_report read_waits(engine& here, const peer& there,
                       std::chrono::milliseconds timeout = std::chrono::seconds(5));

}  // namespace amalgam
