#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <amalgam/rpc/wait_report.hpp>

namespace amalgam::tool {

/// An engine that has told what it waits for.
struct asked_engine {
    std::string address;
    wait_report told;
};

/// What was told by all that were asked; the first is the one that the user means.
struct all_waits {
    std::vector<asked_engine> engines;
    std::map<std::string, std::string> unasked;  ///< Why not, by address.
    std::map<std::string, std::string> outside;  ///< As seen_from_outside(), of silent ones.

    /// Null: it has not told.
    const asked_engine* find(std::uint64_t engine) const noexcept;
};

/// Something that waits for the next one: a call for its handler, a handler for what runs it, and
/// that for another call, or for who holds its mutex. What an engine told may be a lie, so each
/// index is checked when it is made.
struct wait_step {
    enum class kind : std::uint8_t { call, handler, unit };
    std::size_t engine = 0;  ///< Index in all_waits::engines.
    kind what = kind::call;
    std::size_t index = 0;  ///< In wait_report::calls, handlers or units.

    friend bool operator==(const wait_step&, const wait_step&) = default;
};

/// From one that waits to the last one known.
struct wait_chain {
    std::vector<wait_step> steps;
    std::string end;                   ///< Why it ends there, as a sentence; empty for a cycle.
    std::optional<std::size_t> cycle;  ///< The last waits for the step of this number.
};

/// The chains that begin at the first engine; each step is in one of them. Bounded by what was
/// told.
std::vector<wait_chain> chains_of(const all_waits& of);

/// The steps of the cycle, by ids, to tell whether another look finds it again. Empty: none.
std::vector<std::uint64_t> cycle_in(const all_waits& of, const wait_chain& chain);

/// As its engine told it.
std::uint64_t id_of_step(const all_waits& of, const wait_step& at);

/// The cycle of a chain that has one, in a sentence: each that waits, and for what.
std::string deadlock_of(const all_waits& of, const wait_chain& chain);

/// For people and for programs. Safe for a terminal.
std::string text_of(const all_waits& of, const std::vector<wait_chain>& chains);
std::string json_of(const all_waits& of, const std::vector<wait_chain>& chains);

}  // namespace amalgam::tool
