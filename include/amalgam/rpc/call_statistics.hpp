#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/rpc/interceptor.hpp>

namespace amalgam {

/// What is known of the calls of one procedure, in one direction.
struct procedure_statistics {
    std::string name;            ///< Of the procedure.
    std::uint16_t provider = 0;  ///< 0 for calls that were made.
    std::uint64_t calls = 0;     ///< That have ended.
    std::uint64_t failures = 0;  ///< Of `calls`: those that did not end with `ok`.
    clock::duration min{0};      ///< Of the time that a call or its handler took.
    clock::duration max{0};      ///< Likewise, the longest.
    clock::duration total{0};    ///< The sum over `calls`.

    /// Of one call; 0 where there was none.
    clock::duration mean() const noexcept {
        return calls == 0 ? clock::duration{} : total / static_cast<std::int64_t>(calls);
    }
};

/// Counts calls and measures their time, per procedure: an interceptor to add to
/// `engine_options::interceptors`, of one engine or several.
///
///     auto counts = std::make_shared<am::call_statistics>();
///     am::engine server{uri, {.interceptors = {counts}}};
///     …  std::cout << counts->to_json();
///
/// Calls that were made are counted when they end, without one-way calls; calls that were served
/// when their handler returns. The library's own procedures are left out.
/// Threads: any.
/// Cost:    a lock and a search in a table per call; memory for at most 4,096 procedures in each
///          direction, further ones are counted together as "…". Engines without it pay nothing.
class call_statistics final : public interceptor {
public:
    call_statistics();
    ~call_statistics() override;

    /// By name and provider.
    std::vector<procedure_statistics> called_so_far() const;
    std::vector<procedure_statistics> served_so_far() const;
    /// Both, on one line; times in nanoseconds:
    ///     {"called": [{"name": "sum", "calls": 2, "failures": 0, "ns": {"min": 900, "mean": 950,
    ///      "max": 1000, "total": 1900}}], "served": [{"name": "sum", "provider": 3, …}]}
    std::string to_json() const;
    /// Starts again from zero.
    void clear();

    void called(std::string_view procedure, const peer& to, status how,
                clock::duration took) override;
    void served(call_context& call, status how, clock::duration took) override;

private:
    struct tables;
    std::unique_ptr<tables> all_;
};

}  // namespace amalgam
