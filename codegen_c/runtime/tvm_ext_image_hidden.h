/* Included before each source of an image: all it names is in the image, so that addresses are distances. */
#pragma GCC visibility push(hidden)
