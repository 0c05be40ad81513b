#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <amalgam/core/detail/function.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/core/latency_histogram.hpp>

namespace amalgam {

/// What a number does over time, as Prometheus has it.
enum class metric_kind : std::uint8_t {
    counter,  ///< Only grows; its name ends in "_total".
    gauge,    ///< Goes up and down.
    latency   ///< A latency histogram; its name ends in "_seconds".
};

/// One dimension of a number: {"procedure", "sum"}.
struct metric_label {
    std::string name;   ///< As Prometheus has it: "procedure".
    std::string value;  ///< Any text.

    template <typename Archive>
    void serialize(Archive& a) {
        a(name, value);
    }
    friend bool operator==(const metric_label&, const metric_label&) = default;
    friend auto operator<=>(const metric_label&, const metric_label&) = default;
};

/// What a number is. Names are as Prometheus has them, with the unit in the name:
/// "amalgam_rpc_calls_total", "amalgam_rpc_handler_seconds".
struct metric_description {
    std::string name;                       ///< Of the family: one for each number.
    std::string help;                       ///< One sentence, for people.
    metric_kind kind = metric_kind::gauge;  ///< What it does over time.
    std::string unit{};                     ///< "bytes", "seconds"; empty: a plain number.

    template <typename Archive>
    void serialize(Archive& a) {
        a(name, help, kind, unit);
    }
    friend bool operator==(const metric_description&, const metric_description&) = default;
};

/// One number of a family: that of one combination of labels.
struct metric_sample {
    std::vector<metric_label> labels;  ///< By name.
    double value = 0;                  ///< Of counters and gauges.
    latency_distribution latency{};    ///< Of latency histograms; else empty.

    template <typename Archive>
    void serialize(Archive& a) {
        a(labels, value, latency);
    }
    friend bool operator==(const metric_sample&, const metric_sample&) = default;
};

/// All numbers of one name.
struct metric_family {
    metric_description what;             ///< Describes all of them.
    std::vector<metric_sample> samples;  ///< By labels, each once.

    template <typename Archive>
    void serialize(Archive& a) {
        a(what, samples);
    }
    friend bool operator==(const metric_family&, const metric_family&) = default;
};

/// What a registry has read: all its numbers.
struct metric_snapshot {
    std::vector<metric_family> families;  ///< By name.
    std::uint64_t left_out = 0;           ///< Samples above the limits; they are not in `families`.
    std::uint64_t failed = 0;  ///< Callbacks that threw; what they would have said is missing.

    /// Null: there is none of that name.
    const metric_family* find(std::string_view name) const noexcept;
    /// The number with exactly these labels, in any order; 0 if there is none.
    double value(std::string_view name, std::vector<metric_label> labels = {}) const;

    template <typename Archive>
    void serialize(Archive& a) {
        a(families, left_out, failed);
    }
    friend bool operator==(const metric_snapshot&, const metric_snapshot&) = default;
};

/// What a snapshot may hold. Further samples are left out and counted.
struct metric_limits {
    std::size_t label_sets = 1000;  ///< Of one name.
    std::size_t samples = 20'000;   ///< Of all names.
};

/// Puts a snapshot together. Samples with the same name and labels add up.
///
/// Threads: one.
class metric_writer {
public:
    explicit metric_writer(metric_limits limits = {});
    metric_writer(const metric_writer&) = delete;
    metric_writer& operator=(const metric_writer&) = delete;
    ~metric_writer();

    /// Failure: throws error{invalid}, with a sentence, for a name or label that is none, and for a
    ///          name that has another kind already.
    void add(const metric_description& what, std::vector<metric_label> labels, double value);
    void add(const metric_description& what, std::vector<metric_label> labels,
             const latency_distribution& latency);
    /// Counts one that could not be read.
    void add_failure() noexcept;
    /// What was added; the writer is empty then.
    metric_snapshot take();

private:
    struct state;
    metric_sample* sample(const metric_description& what, std::vector<metric_label> labels);

    std::unique_ptr<state> state_;
};

/// The numbers of one engine, from all its layers: each layer registers what it counts, for as long
/// as that lives, and a snapshot reads all. There is no global registry.
///
/// Threads: all members may run concurrently. Callbacks run under the registry's lock, on the
///          thread that takes the snapshot, so they must not use the registry or wait.
/// Failure: what a callback throws is counted in metric_snapshot::failed; the others are read. In a
///          child of fork(), where the numbers are the parent's, snapshots are empty.
/// Cost:    numbers that are read by callback cost nothing until somebody looks.
class metric_registry {
public:
    class registration;

    explicit metric_registry(metric_limits limits = {});
    metric_registry(const metric_registry&) = delete;
    metric_registry& operator=(const metric_registry&) = delete;
    ~metric_registry();

    /// A number that `read` tells. Failure: throws error{invalid} as metric_writer::add(), and for
    /// an empty function.
    [[nodiscard]] registration add(metric_description what, std::vector<metric_label> labels,
                                   std::function<double()> read);
    /// A histogram that lives at least as long as the registration.
    [[nodiscard]] registration add(metric_description what, std::vector<metric_label> labels,
                                   const latency_histogram& recorded);
    /// Any number of numbers, for what comes and goes.
    [[nodiscard]] registration add_group(std::function<void(metric_writer&)> write);

    /// Reads all numbers now: as a value, or into a writer.
    metric_snapshot snapshot() const;
    void write_to(metric_writer& into) const;

private:
    struct state;
    std::shared_ptr<state> state_;  // Shared with registrations, which may outlive it.
};

/// Keeps a number in its registry. May outlive the registry.
class metric_registry::registration {
public:
    registration() noexcept = default;
    registration(registration&&) noexcept = default;
    registration& operator=(registration&& other) noexcept;
    ~registration() { reset(); }

    /// Removes the number. Once this returns, its callback is not running and will not run again.
    void reset() noexcept;

private:
    friend class metric_registry;
    registration(std::weak_ptr<state> of, std::uint64_t id) : of_(std::move(of)), id_(id) {}

    std::weak_ptr<state> of_;
    std::uint64_t id_ = 0;
};

/// Adds what the kernel counts for this process, by the names that Prometheus' own clients use:
/// process_cpu_seconds_total, process_resident_memory_bytes, process_open_fds, process_threads.
/// Linux; what cannot be read is left out.
void write_process_metrics(metric_writer& into);

/// For people: one "name{label="value"} number" a line; latencies as count, mean, p50 to p99.9.
/// `only`: names that contain this.
std::string to_text(const metric_snapshot& all, std::string_view only = {});
/// One JSON object on one line; latencies in seconds, as count, mean and quantiles.
std::string to_json(const metric_snapshot& all, std::string_view only = {});
/// In the text format of Prometheus, version 0.0.4. A time counts in the bucket of the smallest
/// power of two nanoseconds above it.
std::string to_prometheus(const metric_snapshot& all, std::string_view only = {});
/// The same in the format of OpenMetrics, version 1.0.0.
std::string to_openmetrics(const metric_snapshot& all, std::string_view only = {});

}  // namespace amalgam
