// Finds outlines in images: one node reads them (PPM and PNG), several filter, each taking the next
// image when done with one, and one writes the results under the same names:
//
//     read -> [ filter.0 .. filter.N ] -> write
//
// As one process, or as three:
//
//     image_pipeline --generate 24 --into samples
//     image_pipeline samples --into results
//     amalgam run -c groups.json -- image_pipeline samples --into results
//
// where groups.json gives the groups read, filter and write an endpoint each. --sequential does the
// same in a plain loop, without a graph. Unreadable images are reported with what is wrong; all
// others are processed, and the exit code is 1.
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include <amalgam/flow.hpp>

#include "files.hpp"
#include "filter.hpp"
#include "options.hpp"
#include "sample.hpp"

namespace image_pipeline {
namespace {

class reader : public am::source<picture> {
public:
    explicit reader(const options& asked) : asked_(asked) {}

    /// Checks all names first: better to report a wrong one now than in an hour.
    void start(const am::place&) { files_ = files_of(asked_); }

    void generate(am::outlet<picture>& out) {
        for (const std::string& file : files_)
            out.send(read_picture(file));
    }

private:
    const options& asked_;
    std::vector<std::string> files_;
};

picture filtered(picture what) {
    if (what.wrong.empty()) what.content = outlines(what.content);
    return what;
}

class writer : public am::sink<picture> {
public:
    explicit writer(const options& asked) : asked_(asked) {}

    void start(const am::place&) { results_.emplace(asked_.into); }
    void consume(const picture& done) { results_->save(done); }
    void end() { results_->finish(); }

private:
    const options& asked_;
    std::optional<result_folder> results_;
};

int filter_in_a_graph(const options& asked) {
    am::graph graph;
    auto read = graph.add<reader>("read", asked);
    auto filter =
        graph.add_farm<picture, picture>("filter", asked.workers, filtered, am::on_demand());
    auto write = graph.add<writer>("write", asked);
    graph.pipeline(read, filter, write);
    graph.group("read").add(read);
    graph.group("filter").add(filter);
    graph.group("write").add(write);
    return am::run_main(graph, {.queue_items = 4});  // Images are large.
}

void filter_in_a_loop(const options& asked) {
    const std::vector<std::string> files = files_of(asked);
    result_folder results(asked.into);
    for (const std::string& file : files)
        results.save(filtered(read_picture(file)));
    results.finish();
}

void generate(const options& asked) {
    result_folder samples(asked.into);
    for (std::uint32_t i = 0; i < asked.generate; ++i) {
        const format as = i % 2 == 0 ? format::ppm : format::png;
        const std::string name =
            "sample" + std::to_string(i) + (as == format::ppm ? ".ppm" : ".png");
        samples.save({name, as, sample(i, asked.side), {}});
    }
}

}  // namespace
}  // namespace image_pipeline

int main(int argc, char** argv) {
    image_pipeline::options asked;
    const std::string wrong = image_pipeline::read_options({argv + 1, argv + argc}, asked);
    if (!wrong.empty()) {
        std::fprintf(stderr, "image_pipeline: %s\n", wrong.c_str());
        return 2;
    }
    try {
        if (asked.generate > 0)
            image_pipeline::generate(asked);
        else if (asked.sequential)
            image_pipeline::filter_in_a_loop(asked);
        else
            return image_pipeline::filter_in_a_graph(asked);
        return 0;
    } catch (const std::exception& failed) {
        std::fprintf(stderr, "image_pipeline: %s\n", failed.what());
        return 1;
    }
}
