// How heat spreads in a plate: a grid, cut into bands of rows, which workers recompute until the
// last iteration. A worker keeps its bands. Their halos, the rows at their edges, go around the
// loop to the workers with the neighboring bands:
//
//     cut -> [ worker.0 .. worker.N ] -> join
//               ^ halos: feedback |
//               '-----------------'
//
// A band advances as soon as the halos of both neighbors are there, so no iteration waits for the
// whole plate. The workers are in one process, or spread over three:
//
//     heat --rows 1000 --columns 1000 --iterations 500 --picture heat.pgm
//     amalgam run -c groups.json -- heat --rows 1000 --columns 1000 --iterations 500
//
// where groups.json gives the groups G1, G2 and G3 an endpoint each. The result equals that of
// --sequential, a plain loop, to the last bit: compare the checksum, or --result FILE, which gets
// all temperatures.
#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <exception>
#include <fstream>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <amalgam/flow.hpp>

#include "options.hpp"
#include "plate.hpp"

namespace heat {
namespace {

using row = std::vector<double>;

/// A message to or from the worker that has a band.
struct message {
    enum class kind : std::uint8_t {
        rows,        ///< The band itself, before its first step.
        from_above,  ///< A halo: the last row of the band above.
        from_below,  ///< A halo: the first row of the band below.
        result       ///< The band itself, after its last step.
    };

    kind what = kind::rows;
    std::uint64_t band = 0;
    std::vector<double> values;

    bool is_halo() const { return what == kind::from_above || what == kind::from_below; }

    template <typename Archive>
    void serialize(Archive& archive) {
        archive(what, band, values);
    }
};

std::size_t first_row_of(std::size_t band, const options& asked) {
    return band * asked.size.rows / asked.bands;
}

/// Sends every band in its initial state to its worker.
class cut : public am::source<message> {
public:
    explicit cut(const options& asked) : asked_(asked) {}

    void generate(am::outlet<message>& out) {
        for (std::size_t i = 0; i < asked_.bands; ++i) {
            const std::size_t first = first_row_of(i, asked_);
            const std::size_t rows = first_row_of(i + 1, asked_) - first;
            out.send({message::kind::rows, i, temperatures_at_start(asked_.size, first, rows)});
        }
    }

private:
    const options& asked_;
};

/// Keeps some bands, and advances each as far as the received halos allow.
class worker : public am::stage<message, message> {
public:
    explicit worker(const options& asked) : asked_(asked) {}

    void process(message got, am::outlet<message>& out) {
        share& own = shares_[got.band];
        switch (got.what) {
            case message::kind::rows:
                own.rows.emplace(std::move(got.values), asked_.size.columns);
                send_halos(got.band, own, out);
                break;
            case message::kind::from_above:
                own.above.push_back(std::move(got.values));
                break;
            case message::kind::from_below:
                own.below.push_back(std::move(got.values));
                break;
            case message::kind::result:
                break;  // Goes only to join.
        }
        advance(got.band, own, out);
    }

private:
    /// A band, and halos waiting for it. Those of one neighbor arrive in order, and it can be at
    /// most one iteration ahead: so the first one, if any, is the one needed next.
    struct share {
        std::optional<band> rows;
        std::deque<row> above, below;
        std::size_t iterations = 0;
    };

    bool has_above(std::uint64_t number) const { return number > 0; }
    bool has_below(std::uint64_t number) const { return number + 1 < asked_.bands; }

    void send_halos(std::uint64_t number, const share& own, am::outlet<message>& out) {
        if (has_above(number))
            out.send({message::kind::from_below, number - 1, own.rows->first_row()});
        if (has_below(number))
            out.send({message::kind::from_above, number + 1, own.rows->last_row()});
    }

    void advance(std::uint64_t number, share& own, am::outlet<message>& out) {
        const bool needs_above = has_above(number), needs_below = has_below(number);
        while (own.rows && own.iterations < asked_.iterations &&
               !(needs_above && own.above.empty()) && !(needs_below && own.below.empty())) {
            own.rows->step(needs_above ? own.above.front().data() : nullptr,
                           needs_below ? own.below.front().data() : nullptr);
            if (needs_above) own.above.pop_front();
            if (needs_below) own.below.pop_front();
            if (++own.iterations < asked_.iterations)
                send_halos(number, own, out);
            else
                out.send({message::kind::result, number, own.rows->temperatures()});
        }
    }

    const options& asked_;
    std::map<std::uint64_t, share> shares_;
};

void write_file(const std::string& file, std::string_view bytes) {
    std::ofstream out(file, std::ios::binary);
    if (!out.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush())
        throw std::runtime_error("the file \"" + file + "\" cannot be written (" +
                                 std::strerror(errno) + ")");
}

void show(const options& asked, const std::vector<double>& temperatures) {
    std::printf("%zu x %zu after %zu iterations: checksum %016" PRIx64 "\n", asked.size.rows,
                asked.size.columns, asked.iterations, checksum(temperatures));
    std::fflush(stdout);
    if (!asked.result.empty()) write_file(asked.result, bytes_of(temperatures));
    if (!asked.picture.empty()) write_file(asked.picture, picture_of(asked.size, temperatures));
}

/// Reassembles the bands.
class join : public am::sink<message> {
public:
    explicit join(const options& asked)
        : asked_(asked), temperatures_(asked.size.rows * asked.size.columns) {}

    void consume(const message& got) {
        const std::size_t first = first_row_of(got.band, asked_) * asked_.size.columns;
        std::copy(got.values.begin(), got.values.end(),
                  temperatures_.begin() + static_cast<std::ptrdiff_t>(first));
        ++bands_;
    }
    void end() {
        if (bands_ != asked_.bands)
            throw std::runtime_error(std::to_string(bands_) + " bands arrived, expected " +
                                     std::to_string(asked_.bands));
        show(asked_, temperatures_);
    }

private:
    const options& asked_;
    std::vector<double> temperatures_;
    std::size_t bands_ = 0;
};

int compute_in_a_graph(const options& asked) {
    am::graph graph;
    auto from = graph.add<cut>("cut", asked);
    auto to = graph.add<join>("join", asked);
    graph.group("G1").add(from, to);

    std::vector<am::block<message, message>> workers;
    for (std::size_t i = 0; i < asked.workers; ++i) {
        workers.push_back(graph.add<worker>("worker." + std::to_string(i), asked));
        graph.group("G" + std::to_string(1 + i * 3 / asked.workers)).add(workers.back());
    }
    // Neighboring bands go to the same worker, if possible.
    const auto whose = [bands = asked.bands](const message& sent, std::size_t among) {
        return static_cast<std::size_t>(sent.band) * among / bands;
    };
    auto body = graph.farm(workers, am::route_by(whose));
    auto loop = graph.feedback(body, [](const message& sent) { return sent.is_halo(); });
    graph.pipeline(from, loop, to);
    return am::run_main(graph);
}

/// Computes the same as a single band.
void compute_in_a_loop(const options& asked) {
    band all(temperatures_at_start(asked.size, 0, asked.size.rows), asked.size.columns);
    for (std::size_t i = 0; i < asked.iterations; ++i)
        all.step(nullptr, nullptr);
    show(asked, all.temperatures());
}

}  // namespace
}  // namespace heat

int main(int argc, char** argv) {
    heat::options asked;
    const std::string wrong = heat::read_options({argv + 1, argv + argc}, asked);
    if (!wrong.empty()) {
        std::fprintf(stderr, "heat: %s\n", wrong.c_str());
        return 2;
    }
    try {
        if (!asked.sequential) return heat::compute_in_a_graph(asked);
        heat::compute_in_a_loop(asked);
        return 0;
    } catch (const std::exception& failed) {
        std::fprintf(stderr, "heat: %s\n", failed.what());
        return 1;
    }
}
