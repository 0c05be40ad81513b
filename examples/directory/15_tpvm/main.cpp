// Draws the Mandelbrot set with tasks on several hosts: each exports a thread that draws strips.
// The first task starts some threads in all of them and gives each its next strip when it is free.
//
//     tpvm_mandelbrot picture.png                                 three tasks on this host
//     tpvm_mandelbrot picture.png --host a="ssh node7" --host b="ssh node8"
//
// Hosts need this program at the same path, and directories that know each other.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <png.h>

#include <amalgam/directory.hpp>

#include "tpvm.hpp"

namespace {

constexpr int strip_tag = 1, drawn_tag = 2, leave_tag = 3;
constexpr std::uint32_t width = 960, height = 640, rows_per_strip = 16;
constexpr std::uint32_t strips = height / rows_per_strip;

/// One byte per point of a strip: how soon it is known to be outside.
std::vector<std::uint8_t> draw(std::uint32_t strip) {
    std::vector<std::uint8_t> points(width * rows_per_strip);
    for (std::uint32_t i = 0; i < points.size(); ++i) {
        const double cx = -2.25 + 3.0 * (i % width) / width;
        const double cy = -1.0 + 2.0 * (strip * rows_per_strip + i / width) / height;
        double x = 0, y = 0;
        int steps = 0;
        for (; steps < 255 && x * x + y * y < 4; ++steps) {
            const double next = x * x - y * y + cx;
            y = 2 * x * y + cy;
            x = next;
        }
        points[i] = static_cast<std::uint8_t>(255 - steps);
    }
    return points;
}

void write_png(const std::string& path, const std::vector<std::uint8_t>& points) {
    png_image image;
    std::memset(&image, 0, sizeof image);
    image.version = PNG_IMAGE_VERSION;
    image.width = width;
    image.height = height;
    image.format = PNG_FORMAT_GRAY;
    if (png_image_write_to_file(&image, path.c_str(), 0, points.data(), 0, nullptr) == 0)
        throw std::runtime_error(path + ": " + image.message);
}

/// A spawned task: exports its thread, and stays until told to leave.
int work() {
    am::context here;
    tpvm::task me(here);
    me.export_thread("draw", [](tpvm::thread& self) {
        for (;;) {
            const tpvm::message asked = self.receive(self.parent());
            if (asked.tag == leave_tag) return;
            std::uint32_t strip = 0;
            std::memcpy(&strip, asked.content.data(), sizeof strip);
            std::vector<std::uint8_t> answer = draw(strip);
            answer.insert(answer.begin(), sizeof strip, 0);
            std::memcpy(answer.data(), &strip, sizeof strip);
            self.send(self.parent(), drawn_tag, am::as_bytes_of(answer));
        }
    });
    me.send(me.parent(), drawn_tag, "ready");
    (void)me.receive(me.parent(), leave_tag);
    return 0;
}

int lead(const std::string& picture, const std::map<std::string, std::string>& hosts) {
    // On a single host it serves a directory for the tasks it starts.
    am::engine serves("shm://");
    std::optional<am::directory_server> directory;
    if (hosts.empty()) {
        directory.emplace(serves);
        ::setenv("AMALGAM_DIRECTORY", serves.address().c_str(), 1);
    }
    am::context here;
    tpvm::task me(here);
    std::vector<tpvm::tid> tasks, threads;
    for (const auto& [name, how] : hosts) {
        std::vector<std::string> words;
        std::string word;
        for (const char c : how + ' ') {
            if (c != ' ') {
                word += c;
            } else if (!word.empty()) {
                words.push_back(std::exchange(word, {}));
            }
        }
        me.add_host(name, words);
    }
    for (const std::string& each : hosts.empty() ? std::vector<std::string>(3) : me.hosts())
        tasks.push_back(me.spawn_task(each, {tpvm::own_program(), "--work"}));
    for (const tpvm::tid each : tasks)
        (void)me.receive(each, drawn_tag);  // It has exported its thread.
    for (std::size_t i = 0; i < 2 * tasks.size(); ++i)
        threads.push_back(me.spawn_thread("draw"));

    std::vector<std::uint8_t> points(width * height);
    std::map<tpvm::tid, unsigned> drawn;
    std::uint32_t next = 0, left = strips;
    const auto hand_out = [&](tpvm::tid to) {
        if (next == strips) return;
        me.send(to, strip_tag, am::as_bytes_of(next));
        ++next;
    };
    for (const tpvm::tid each : threads)
        hand_out(each);
    for (; left > 0; --left) {
        const tpvm::message got = me.receive(tpvm::tid::none, drawn_tag);
        std::uint32_t strip = 0;
        std::memcpy(&strip, got.content.data(), sizeof strip);
        const am::const_bytes bytes = got.content.bytes().subspan(sizeof strip);
        std::memcpy(points.data() + std::size_t{strip} * rows_per_strip * width, bytes.data(),
                    bytes.size());
        ++drawn[got.from];
        hand_out(got.from);
    }
    for (const tpvm::tid each : threads)
        me.send(each, leave_tag, "");
    for (const tpvm::tid each : tasks)
        me.send(each, leave_tag, "");

    std::vector<std::uint8_t> alone;
    for (std::uint32_t strip = 0; strip < strips; ++strip) {
        const auto rows = draw(strip);
        alone.insert(alone.end(), rows.begin(), rows.end());
    }
    write_png(picture, points);
    std::cout << strips << " strips by " << drawn.size() << " threads of " << tasks.size()
              << " tasks, " << (points == alone ? "identical" : "NOT identical")
              << " to the picture drawn by one thread\n";
    return points == alone ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    tpvm::launch_if_asked(argc, argv);
    std::string picture;
    std::map<std::string, std::string> hosts;
    bool works = false, wrong = false;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        if (word == "--work") {
            works = true;
        } else if (word == "--host" && i + 1 < argc && std::strchr(argv[i + 1], '=') != nullptr) {
            const std::string both = argv[++i];
            hosts[both.substr(0, both.find('='))] = both.substr(both.find('=') + 1);
        } else if (word.rfind("--", 0) != 0 && picture.empty()) {
            picture = word;
        } else {
            wrong = true;
        }
    }
    if (wrong || works != picture.empty()) {
        std::cerr << "usage: tpvm_mandelbrot PICTURE.png [--host NAME=HOW]...\n"
                     "example: tpvm_mandelbrot picture.png --host a=\"ssh node7\"\n";
        return 2;
    }
    try {
        return works ? work() : lead(picture, hosts);
    } catch (const std::exception& why) {
        std::cerr << "tpvm_mandelbrot: " << why.what() << '\n';
        return 1;
    }
}
