"""Data by name: embedded digits, folders of images and text, synthetic teachers."""
