/* The code that travels: it packs records at their source, and unpacks and stores them where they
 * are kept. Only this file knows how they are packed. */
#include <stdint.h>
#include <string.h>
#include <zlib.h>

#include <amalgam/inject/image.h>

AMALGAM_INJECTED(codec)

/* What the target exports: stores one record. 0: it did. */
int store_record(void* store, const char* text, size_t bytes);

/* A payload: how long the records are, then they, packed. */

size_t codec_payload_get_max_size(void* records, size_t bytes) {
    (void)records;
    return sizeof(uint64_t) + compressBound(bytes);
}

int codec_payload_init(void* payload, size_t payload_size, void* records, size_t bytes) {
    const uint64_t length = bytes;
    uLongf packed = payload_size - sizeof(length);
    memcpy(payload, &length, sizeof(length));
    if (compress((Bytef*)payload + sizeof(length), &packed, records, bytes) != Z_OK) return 1;
    return amalgam_inject_payload_size(sizeof(length) + packed);
}

/* Unpacks as it goes, so that it needs little memory, and stores line by line. */
void codec_main(void* payload, size_t payload_size, void* store) {
    char line[4096];
    size_t in_line = 0;
    uint64_t stored = 0;
    Bytef chunk[16384];
    z_stream stream;
    memset(&stream, 0, sizeof(stream));
    if (payload_size < sizeof(uint64_t) || inflateInit(&stream) != Z_OK) return;
    stream.next_in = (Bytef*)payload + sizeof(uint64_t);
    stream.avail_in = (uInt)(payload_size - sizeof(uint64_t));
    int how = Z_OK;
    while (how == Z_OK) {
        stream.next_out = chunk;
        stream.avail_out = sizeof(chunk);
        how = inflate(&stream, Z_NO_FLUSH);
        for (const Bytef* at = chunk; at != stream.next_out; ++at) {
            if (*at != '\n' && in_line < sizeof(line)) {
                line[in_line++] = (char)*at;
                continue;
            }
            stored += store_record(store, line, in_line) == 0;
            in_line = 0;
        }
    }
    inflateEnd(&stream);
    amalgam_inject_result(&stored, sizeof(stored)); /* For who calls, and does not only send. */
}
