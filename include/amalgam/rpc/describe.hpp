#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/rpc/codec.hpp>
#include <amalgam/rpc/peer.hpp>

namespace amalgam {

class engine;

/// A procedure as its engine describes it.
struct procedure_description {
    std::string name;            ///< As callers name it.
    std::string signature;       ///< "i32(i32,string)"; see type_name().
    std::uint16_t provider = 0;  ///< Id of the provider it belongs to; 0: none.
    std::string about;           ///< procedure_options::about.

    template <typename Archive>
    void serialize(Archive& a) {
        a(name, signature, provider, about);
    }
    friend bool operator==(const procedure_description&, const procedure_description&) = default;
};

/// The procedures that an engine of this process serves, in the order of definition, without those
/// of the library. Failure: throws error{closed} after stop().
std::vector<procedure_description> describe(engine& here);
/// Those of a peer; parks the ULT or thread. Ends after 100,000 procedures.
/// Failure: throws error{denied} if its engine_options::reflection is false; else what calls throw.
std::vector<procedure_description> describe(engine& here, const peer& there);

/// Whether an engine is ready to work for its callers, as it says.
struct engine_health {
    bool serving = true;        ///< As set_health() said last.
    std::string sentence;       ///< Why not; for people.
    std::uint64_t running = 0;  ///< Calls being served.

    template <typename Archive>
    void serialize(Archive& a) {
        a(serving, sentence, running);
    }
};

/// What peers are told from now on. An engine is `serving` until it says otherwise; nothing but its
/// answer changes. `sentence`: at most 1,024 bytes. Any thread.
void set_health(engine& here, bool serving, std::string_view sentence = {});
/// What they are told. Parks the ULT or thread for a moment. Failure: throws error{closed} after
/// stop(), error{invalid} where the caller must not wait.
engine_health health_of(engine& here);
/// Asks a peer; parks the ULT or thread. An engine that stops answers `unavailable`.
/// Failure: throws what calls throw.
engine_health health_of(engine& here, const peer& there);

}  // namespace amalgam
