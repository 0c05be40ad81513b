#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/rpc/detail/handler.hpp>
#include <amalgam/rpc/engine.hpp>

namespace amalgam::detail {

class stream_group;

/// A procedure as it is served here. Lives until it is undefined and its last call ended.
struct served_procedure {
    std::uint64_t id = 0;
    std::string name;
    std::string signature;
    procedure_options options;
    answer_form form = answer_form::result;
    std::shared_ptr<stream_group> streams;  ///< Its own; or null.
    std::unique_ptr<handler_base> run;
    std::size_t running = 0;
    bool defined = true;
    bool library = false;  ///< See is_library_procedure().
};

/// The procedures of one engine, by the id they travel under and the provider.
///
/// Threads: the engine's stream.
/// Cost:    finding one is a probe or two in a table that is at most half full.
class procedure_table {
public:
    /// Failure: throws error{invalid} when the name is taken or has no valid length, or when two
    ///          names share an id.
    void add(std::unique_ptr<served_procedure> fresh);
    /// False: there is none of that name and provider.
    bool remove(std::string_view name, std::uint16_t provider) noexcept;

    served_procedure* find(std::uint64_t id, std::uint16_t provider) const noexcept;
    /// One of that name, whatever its provider.
    served_procedure* find(std::string_view name) const noexcept;
    /// "0, 2": who serves this id.
    std::string providers_of(std::uint64_t id) const;
    /// A call to it ended.
    void release(served_procedure& used) noexcept;

private:
    struct entry {
        std::uint64_t key = 0;
        served_procedure* what = nullptr;
    };
    /// Writes the table anew, in the room it has.
    void fill() noexcept;
    void collect() noexcept;

    std::vector<std::unique_ptr<served_procedure>> all_;  // Undefined ones too, while they run.
    std::vector<entry> table_;                            // A power of two, probed linearly.
};

}  // namespace amalgam::detail
